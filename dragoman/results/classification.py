"""Labels of texts and of their tokens."""

from dataclasses import dataclass, field

from dragoman.results.translation import Timings


@dataclass(frozen=True, slots=True)
class Label:
    """One that something may have."""

    name: str
    """As the model calls it."""
    probability: float


@dataclass(frozen=True, slots=True)
class LabelledSpan:
    """A part of a text, and what it may be."""

    begin: int
    """In characters, as `end`, which is the place after its last one."""
    end: int
    labels: tuple[Label, ...]
    """The most probable first."""


@dataclass(frozen=True, slots=True)
class Classification:
    """What was found of one text."""

    labels: tuple[Label, ...]
    """Of the text, the most probable first. Empty: the model labels tokens."""
    spans: tuple[LabelledSpan, ...]
    """Of its tokens, in the order of the text. Empty: the model labels texts, or nothing is to be found."""
    source_tokens: int
    """Special tokens included."""
    timings: Timings = field(compare=False)
    truncated: bool
    """The end of the text was cut off."""
