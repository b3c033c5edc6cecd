"""What a race comes to: how fast every side was, and how the sides compare."""

import statistics
from collections.abc import Callable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from bench.cpu.plan import Cell, Pair
from bench.cpu.turns import Competitor, Turns, race
from bench.cpu.work import Reading, Work
from bench.sentences import english

CLOSED = ConfigDict(extra="forbid", frozen=True)


class Rate(BaseModel):
    """Of one side: medians."""

    model_config = CLOSED

    wall: float
    """So many a second."""
    cpu: float | None = None
    """So many in a second of a core."""
    turns: int
    setup: str = ""
    """Where it had a choice: workers x threads, and how it makes batches."""


class Ratio(BaseModel):
    """Of two sides: medians of the ratios of each round."""

    model_config = CLOSED

    ours: str
    theirs: str
    wall: float
    cpu: float | None = None
    lowest: float | None = None
    highest: float | None = None
    """The ratios by the clock, round by round."""
    asked: float | None = None


class Race(BaseModel):
    """All sides at one work."""

    model_config = CLOSED

    name: str
    unit: str
    """What is counted: tokens, sentences, characters."""
    rates: dict[str, Rate]
    ratios: list[Ratio]
    absent: dict[str, str] = {}
    """Sides that did not run, and why."""

    def joined(self, other: "Race") -> "Race":
        """Both as one: the same work of other sides."""
        return Race(
            name=self.name,
            unit=self.unit,
            rates=self.rates | other.rates,
            ratios=[*self.ratios, *other.ratios],
            absent=self.absent | other.absent,
        )


def judge(name: str, unit: str, turns: Turns, pairs: Sequence[Pair], count: Callable[[Reading], float]) -> Race:
    """count: how many of the unit a turn did."""
    rates = {
        side: Rate(
            wall=statistics.median(count(reading) / reading.seconds for reading in readings),
            cpu=statistics.median(count(reading) / reading.cpu_seconds for reading in readings),
            turns=len(readings),
            setup=turns.setups.get(side, ""),
        )
        for side, readings in turns.readings.items()
    }
    ratios = [
        _compare(name, pair, turns.readings[pair.ours], turns.readings[pair.theirs], count)
        for pair in pairs
        if pair.ours in turns.readings and pair.theirs in turns.readings
    ]
    return Race(name=name, unit=unit, rates=rates, ratios=ratios, absent=turns.absent)


def _compare(
    name: str, pair: Pair, ours: Sequence[Reading], theirs: Sequence[Reading], count: Callable[[Reading], float]
) -> Ratio:
    # A slow side took fewer turns: those of the first rounds.
    rounds = list(zip(ours, theirs, strict=False))
    wall = [count(one) / one.seconds / (count(other) / other.seconds) for one, other in rounds]
    cpu = [count(one) / one.cpu_seconds / (count(other) / other.cpu_seconds) for one, other in rounds]
    return Ratio(
        ours=pair.ours,
        theirs=pair.theirs,
        wall=statistics.median(wall),
        cpu=statistics.median(cpu),
        lowest=min(wall),
        highest=max(wall),
        asked=pair.asked.get(name),
    )


def tokens(reading: Reading) -> float:
    return reading.tokens


def decoding(
    players: Sequence[Competitor], cells: Sequence[Cell], pairs: Sequence[Pair], repeats: int
) -> Iterator[Race]:
    """Tokens a second of real sentences, token ids in and out, the end tokens counted."""
    for cell in cells:
        work = Work(tuple(english(cell.sentences)), cell.num_beams, cell.batch)
        yield judge(cell.name, "tokens", race(players, work, repeats), pairs, tokens)


def to_length(
    players: Sequence[Competitor],
    cells: Sequence[Cell],
    pairs: Sequence[Pair],
    repeats: int,
    lengths: Callable[[int], tuple[tuple[str, ...], tuple[int, ...]]],
) -> Iterator[Race]:
    """The same of a model whose targets never end: each gets a length.

    lengths: of so many texts, the texts and the target tokens
    """
    for cell in cells:
        texts, target_tokens = lengths(cell.sentences)
        work = Work(texts, cell.num_beams, cell.batch, target_tokens)
        yield judge(cell.name, "tokens", race(players, work, repeats), pairs, tokens)


def file(players: Sequence[Competitor], texts: Sequence[str], pairs: Sequence[Pair], repeats: int) -> Race:
    """Characters of source text a second, from text to text, as a file is translated: greedily, 32 at a time."""
    work = Work(tuple(texts), from_text=True)
    turns = race(players, work, repeats)
    return judge("a file", "characters", turns, pairs, lambda reading: work.characters)


def sentences(players: Sequence[Competitor], texts: Sequence[str], pairs: Sequence[Pair], repeats: int) -> Race:
    """Sentences a second, from text to text."""
    turns = race(players, Work(tuple(texts), from_text=True), repeats)
    return judge("sentences", "sentences", turns, pairs, lambda reading: len(texts))
