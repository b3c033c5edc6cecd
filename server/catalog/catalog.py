"""What is served, by name."""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from server.errors import ModelNotFound

T = TypeVar("T")


class Catalog(Generic[T]):
    """One entry for each model."""

    def __init__(self, entries: Mapping[str, T]) -> None:
        """At least one."""
        self._entries = dict(entries)

    def __iter__(self) -> Iterator[T]:
        """In the order in which they were given."""
        return iter(self._entries.values())

    def find(self, name: str, field: str = "model") -> T:
        """The model of this name; the only one, where the name is empty. Raises ModelNotFound.

        field: the one of the request that has the name
        """
        if not name and len(self._entries) == 1:
            return next(iter(self))
        if name not in self._entries:
            raise ModelNotFound(field, name, list(self._entries))
        return self._entries[name]
