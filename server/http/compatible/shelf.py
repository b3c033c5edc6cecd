"""Files that are ready, until they are fetched: those of an API that answers with where they are."""

import asyncio
import secrets
from collections import Counter
from dataclasses import dataclass

KEPT_S = 600.0
"""How long one is kept. Clients fetch it at once."""
FILE_BYTES = 1024
"""Of each, whatever is in it."""


@dataclass(frozen=True, slots=True)
class Ready:
    """One of them."""

    name: str
    media_type: str
    content: bytes


class Shelf:
    """Keeps files in memory, of no more than so many bytes. Used on one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._files: dict[str, tuple[Ready, str, asyncio.TimerHandle]] = {}
        """By key, the oldest first: each with its caller, and with what ends its time."""
        self._of = Counter[str]()
        """Bytes of each caller."""

    def put(self, file: Ready, caller: str) -> str:
        """Returns its key, which nobody can guess. Where room is short, the oldest of whoever has the most is gone."""
        key = secrets.token_urlsafe(16)
        self._of[caller] += len(file.content) + FILE_BYTES
        self._files[key] = file, caller, asyncio.get_running_loop().call_later(KEPT_S, self._drop, key)
        while self._of.total() > self._most_bytes and len(self._files) > 1:
            [(most, _)] = self._of.most_common(1)
            self._drop(next(one for one, (_, whose, _) in self._files.items() if whose == most))
        return key

    def find(self, key: str) -> Ready | None:
        """None: it never was, or is gone."""
        return self._files[key][0] if key in self._files else None

    def _drop(self, key: str) -> None:
        file, caller, timer = self._files.pop(key)
        timer.cancel()
        self._of[caller] -= len(file.content) + FILE_BYTES
        if not self._of[caller]:
            del self._of[caller]
