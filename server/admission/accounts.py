"""What is kept of callers, of whom there may be any number."""

from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")

SWEEP_FROM = 1024
"""Accounts that may be kept before those that are not needed any more are looked for."""


class Accounts(dict[K, A]):
    """Of each caller one. Used on the event loop only."""

    def __init__(self) -> None:
        super().__init__()
        self._sweep_at = SWEEP_FROM

    def open(self, key: K, account: A, needed: Callable[[A], bool]) -> A:
        """A new one. If there are many, those that are not needed are forgotten first."""
        if len(self) >= self._sweep_at:
            for each in [each for each, one in self.items() if not needed(one)]:
                del self[each]
            self._sweep_at = max(SWEEP_FROM, 2 * len(self))
        self[key] = account
        return account
