"""Whose a port's connections are. Where it is full, an address with few takes a place of the one with most."""

from typing import Protocol


class Held(Protocol):
    """A connection that has a place."""

    @property
    def busy(self) -> bool:
        """A whole request of it is being answered."""

    def abort(self) -> None:
        """Cuts it off."""


class Places:
    """Used on the event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._by_host = dict[str, dict[Held, None]]()
        """The oldest first. A host has one at least."""
        self.taken = 0

    def free(self, host: str) -> bool:
        """Whether one more of this address would find a place."""
        return self.taken < self.most or self._least_missed(host) is not None

    def take(self, one: Held, host: str) -> bool:
        """Whether there was one. Perhaps another connection has none any more, and is cut off."""
        if self.taken >= self.most:
            if (missed := self._least_missed(host)) is None:
                return False
            self.leave(*missed)
            missed[0].abort()
        self._by_host.setdefault(host, {})[one] = None
        self.taken += 1
        return True

    def leave(self, one: Held, host: str) -> None:
        """Gives its place back, if it has one."""
        held = self._by_host.get(host, {})
        if one in held:
            del held[one]
            self.taken -= 1
            if not held:
                del self._by_host[host]

    def _least_missed(self, host: str) -> tuple[Held, str] | None:
        """Of the address with most the oldest that is not busy. None: this address has as many, or all are busy."""
        crowd = max(self._by_host, key=lambda one: len(self._by_host[one]))
        if len(self._by_host[crowd]) <= len(self._by_host.get(host, ())) + 1:
            return None
        return next(((one, crowd) for one in self._by_host[crowd] if not one.busy), None)
