"""What sides are given to do, and what is read of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

WORKERS = 2
"""Of one thread each, where a side is not told otherwise."""
MAX_TOKENS = 256
"""Of a target."""


@dataclass(frozen=True, slots=True)
class Work:
    """Texts to translate."""

    texts: tuple[str, ...]
    num_beams: int = 1
    batch: int = 32
    """Sentences decoded at a time by each worker."""
    target_tokens: tuple[int, ...] | None = None
    """How long each target is to be, where it never ends by itself."""
    from_text: bool = False
    """Whether tokenizing and detokenizing count."""
    outstanding: int | None = None
    """So many sentences are with the engine at a time, where it takes them one by one. None: all."""

    @property
    def characters(self) -> int:
        """Of all texts."""
        return sum(map(len, self.texts))


@dataclass(frozen=True, slots=True)
class Reading:
    """Of one turn."""

    tokens: int
    """Of all targets, the end tokens counted. 0 where an engine does not say."""
    seconds: float
    cpu_seconds: float
    """Of all threads of the side's process."""


class Engine(Protocol):
    """One side. It lives in a process of its own, and is asked for one thing at a time."""

    def prepare(self, work: Work) -> str:
        """Gets ready for turns, and warms up. Returns how it was set up, where it had a choice."""
        ...

    def translate(self) -> int:
        """A turn: all of the work. Returns the target tokens."""
        ...

    def answers(self, texts: Sequence[str], num_beams: int) -> list[str]:
        """Translations, which nobody times."""
        ...


@dataclass(frozen=True, slots=True)
class Side:
    """An engine by its name, and how a process opens it."""

    name: str
    open: Callable[[], Engine]
    """Can be pickled. What it raises says why there is no such side."""
    rounds: int | None = None
    """It takes so many turns at most: it is slow, and nothing is compared with it closely."""
    packages: str | None = None
    """A folder that comes first on the path of its process, where it wants other versions than we have."""
    cores: int | None = None
    """It has the first so many cores. None: all."""
