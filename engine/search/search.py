"""What a search is to the running batch: it asks, sees, and says how its rows go on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.decoder import Ask, Found
from engine.request import Hypothesis


@dataclass(frozen=True, slots=True)
class Seen:
    """What a step found of the rows of one search."""

    token_ids: Sequence[Sequence[int]]
    """[rows, ask.best], best first. Rows may be longer, and shorter if they hold the whole vocabulary."""
    log_probs: Sequence[Sequence[float]]
    """The same of the tokens' log-probabilities."""
    found: Found
    """All that was found, of all rows of the batch."""
    rows: Sequence[int]
    """Which of them are the search's."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What a search wants of the next step: child j extends parent row parents[j] by tokens[j]. No child: finished."""

    parents: Sequence[int]
    """Local rows, 0 being the first row the search held in this step."""
    tokens: Sequence[int]


FINISHED = Advance((), ())


class Search(Protocol):
    """One sentence's search. It holds one row at first, and as many rows after each step as `advance` returned."""

    @property
    def ask(self) -> Ask:
        """What it must see of each of its rows after the next step."""
        ...

    def advance(self, seen: Seen) -> Advance:
        """Takes what a step found of its rows."""
        ...

    def settled(self) -> tuple[int, ...]:
        """The tokens that every possible best result begins with, so far."""
        ...

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The results, best first, at most `num_return_sequences`. Only once finished."""
        ...
