"""What is served: by name, or by the languages that a call asks for."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Generic, Protocol, TypeVar

from models.languages import choose, lookup
from server.catalog.served_model import ServedModel
from server.errors import LanguageNotSupported, ModelNotFound, quoted

THE_SERVER = "the server"
"""Who has no such language, where no model of it does."""


class Entry(Protocol):
    """Whoever serves a model."""

    @property
    def model(self) -> ServedModel:
        """The facts that calls are routed by."""
        ...

    @property
    def open(self) -> bool:
        """Whether calls are let in, as far as there is room. Not where the engine has failed for good."""
        ...


E = TypeVar("E", bound=Entry)
T = TypeVar("T", bound=Entry, covariant=True)


@dataclass(frozen=True, slots=True)
class Pivot(Generic[T]):
    """A way through a third language."""

    first: T
    second: T
    between: str
    """As the first model calls it."""


class Catalog(Generic[T]):
    """All models, the default one first."""

    def __init__(self, entries: Sequence[T]) -> None:
        """At least one; each has a name of its own."""
        self._entries = {entry.model.name: entry for entry in entries}

    def __iter__(self) -> Iterator[T]:
        """In the order in which they were given."""
        return iter(self._entries.values())

    def replace(self, entry: T) -> None:  # type: ignore[misc]  # whoever replaces one knows what all are
        """Has this one in the place of the one of its name. Who has found that one keeps it."""
        assert entry.model.name in self._entries
        self._entries = {**self._entries, entry.model.name: entry}

    def renew(self, entries: Sequence[T]) -> None:
        """Has these in the place of all. Who has found one keeps it."""
        self._entries = {entry.model.name: entry for entry in entries}

    def find(self, name: str, field: str = "model") -> T:
        """The model of this name; the default one, where the name is empty. Raises ModelNotFound.

        field: the one of the request that has the name
        """
        if not name:
            return next(iter(self))
        if name not in self._entries:
            raise ModelNotFound(field, name, list(self._entries))
        return self._entries[name]

    def route(self, name: str, source: str, target: str) -> T:
        """The model that translates: the named one, else the first that has both languages, of those that are open.

        Raises ModelNotFound, or LanguageNotSupported where no model has them. `source`, `target`: tags, which may be
        empty; where both are, the first that translates. What else a model refuses is left to it.
        """
        translating = [entry for entry in self if entry.model.decoder_layers]
        if name or not translating:
            return self.find(name)
        if len(translating) == 1 or not (source or target):
            return _open_first(translating)[0]
        reading = [entry for entry in translating if choose(source, entry.model.source_languages) is not None]
        if not reading:
            known = _each(tag for entry in translating for tag in entry.model.source_languages)
            raise LanguageNotSupported("source_language_code", source, known, THE_SERVER)
        if both := [entry for entry in reading if choose(target, entry.model.target_languages) is not None]:
            return _open_first(both)[0]
        known = _each(tag for entry in reading for tag in entry.model.target_languages)
        whence = f"from {quoted(source)} {THE_SERVER}" if source else THE_SERVER
        raise LanguageNotSupported("target_language_code", target, known, whence)

    def pivot(self, source: str, target: str) -> Pivot[T] | None:
        """The first two models that have a way through a third language. None: one has both, or there is no way.

        `source`, `target`: tags, which must not be empty.
        """
        reading = [one for one in self if one.model.decoder_layers and lookup(source, one.model.source_languages)]
        writing = [one for one in self if one.model.decoder_layers and lookup(target, one.model.target_languages)]
        if any(one in writing for one in reading):
            return None
        pairs = product(_open_first(reading), _open_first(writing))
        return next((Pivot(*pair, tag) for pair in pairs for tag in _ways(pair[0].model, pair[1].model)), None)


def _open_first(entries: Iterable[E]) -> list[E]:
    """In their order but for those that are not open: they tell why, where there is no other."""
    return sorted(entries, key=lambda entry: not entry.open)


def _ways(first: ServedModel, second: ServedModel) -> Iterable[str]:
    """The languages that one writes and the other reads."""
    return (tag for tag in first.target_languages if choose(tag, second.source_languages) is not None)


def _each(tags: Iterable[str]) -> list[str]:
    """Every one once."""
    return list(dict.fromkeys(tags))
