"""`python -m bench.instructions.marked MARKS`: steps of the engine between marks, to run under callgrind.

MARKS is the library of marks.c. Only what lies between two marks is counted, so that starting Python costs little.
"""

import argparse
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from engine.batch import running_batch
from engine.batch.running_batch import RunningBatch
from engine.decoder import Ask, Followed, Found, Goes, Parents, TokenIds
from engine.devices.session import CPU
from engine.native.rows import NO_BUFFERS, Rows
from engine.observer import Unobserved
from engine.request import Translate
from engine.targets import target_rules
from kernels.library import open_library
from kernels.steps import Recording, SoFar
from models.decoding import Decoding
from models.package.folder import Package

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
TURNS = 20
WARM_UP = 3
SOURCE_TOKENS = 28
TOKENS = range(100, 200)
"""What is found. None of them ends a hypothesis."""
MOST_CANDIDATES = 8


class Cell(NamedTuple):
    """What is counted of."""

    beams: int
    sentences: int
    """Of the running batch."""
    steps: int
    """Of a turn."""
    follows: bool = False
    """The library makes the steps, as with our own operators."""

    @property
    def name(self) -> str:
        together = f", {self.steps} steps a turn" if self.steps > 1 else ""
        return f"engine, beams {self.beams}, sentences {self.sentences}{together}{', made again' * self.follows}"


CELLS = (
    *(Cell(1, 1, 1), Cell(1, 32, 1), Cell(4, 1, 1), Cell(4, 32, 1), Cell(1, 1, 8), Cell(4, 1, 8), Cell(4, 32, 8)),
    *(Cell(1, 1, 1, follows=True), Cell(4, 1, 1, follows=True)),
    *(Cell(1, 1, 8, follows=True), Cell(4, 1, 8, follows=True), Cell(4, 32, 8, follows=True)),
)
"""In the order in which they are counted."""


@dataclass(slots=True)
class Turn:
    """Steps of one, after which somebody waits, for whom there is a row. By the clock, their number would differ."""

    steps: int
    made: int = 0

    @property
    def left(self) -> int:
        """Steps that are still to be made."""
        return self.steps - self.made

    def called(self) -> bool:
        """Somebody waits."""
        return self.left <= 0


class Still:
    """A decoder that computes nothing and says the same at every step: what is left of a step is the engine's."""

    def __init__(self, cell: Cell, turn: Turn) -> None:
        self._cell, self._turn = cell, turn

    device = replace(CPU, has_slots=True)  # as the native one
    row_tokens = 1024
    gives_logits = False

    def encode(self, sources: object, named: object = ()) -> list["Still"]:
        return [self] * len(sources)  # type: ignore[arg-type]

    @property
    def computed_tokens(self) -> float:
        return 0.0

    def hidden(self) -> NDArray[np.float32]:
        return np.zeros((1, 4), np.float32)

    def close(self) -> None:
        """Nothing to close."""

    @property
    def given_targets(self) -> NoReturn:
        raise AssertionError("no step looks at given targets")

    def open_cache(self, rows: int) -> "StillCache":
        return (FollowingStillCache if self._cell.follows else StillCache)(rows, self._turn)


class StillCache:
    """Counts its rows. What is found of them differs from row to row, so that beams change their order."""

    def __init__(self, rows: int, turn: Turn) -> None:
        chance = np.random.default_rng(1)
        self.live, self._of, self._turn = 0, (0, 0), turn
        self._tokens = chance.choice(TOKENS, (rows, MOST_CANDIDATES))
        self._log_probs = -np.sort(chance.random((rows, MOST_CANDIDATES), np.float32))

    def join(self, source: Still) -> int:
        self.live += 1
        return self.live - 1

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        if self._of != (self.live, ask.best):  # as real ones, it finds it in the same memory at every step
            self._of = self.live, ask.best
            part = slice(self.live), slice(ask.best)
            self._found = Found(self._tokens[part].copy(), self._log_probs[part].copy())

    def end_step(self) -> Found:
        self._turn.made += 1
        return self._found

    def take(self, parents: Parents) -> int:
        self.live = len(parents)
        return 0


class FollowingStillCache(StillCache):
    """One with the slots of the native one, whose steps the library makes: the graph of each has no nodes."""

    def __init__(self, rows: int, turn: Turn) -> None:
        super().__init__(rows, turn)
        self._library = open_library()
        self._rows = Rows(rows, self._library)

    def join(self, source: Still) -> int:
        self._rows.join(SOURCE_TOKENS)
        return super().join(source)

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        before = self._of
        super().begin_step(token_ids, ask)
        if self._of != before:
            self._following = self._rows.following(Recording(self._library, lambda: None, ()), self._found)
        self._rows.ids[: self.live] = token_ids

    def end_step(self) -> Found:
        self._rows.advance()
        return super().end_step()

    def follow(self, search: Goes, most: int, arrivals: SoFar) -> Followed:
        self._following.look_for(arrivals, NO_BUFFERS)
        self._rows.hold()
        made = search.follow(self._following, self._found, min(most, self._turn.left))
        self._turn.made += made
        self._rows.furthest += made
        return Followed(self._found, made, *self._following.copied)

    def take(self, parents: Parents) -> int:
        super().take(parents)
        return self._rows.take(parents).copied_bytes


def engine_turn(cell: Cell) -> Callable[[], object]:
    """What makes a turn of a running batch, but for the decoder's part."""
    turn, zoo, rows = Turn(cell.steps), Package.open(ZOO), cell.beams * cell.sentences + 1
    still = Still(cell, turn)
    running_batch.TOGETHER_S = 1000.0
    batch: RunningBatch[Still] = RunningBatch(still, rows, Unobserved(), 0, called=turn.called)
    rules = target_rules(zoo.manifest.graphs.vocabulary, zoo.manifest.generation)
    decoding = Decoding(num_beams=cell.beams, max_new_tokens=500)
    source = (TOKENS[0],) * SOURCE_TOKENS
    batch.admit([Translate(source, lambda event: None, decoding=decoding, rules=rules) for _ in range(cell.sentences)])

    def make() -> None:
        turn.made = 0
        batch.step()

    return make


def main() -> None:
    """Takes the turns of every section, with a mark before and after them."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions.marked", description=__doc__)
    parser.add_argument("marks", metavar="MARKS", help="library of marks.c")
    marks = ctypes.CDLL(parser.parse_args().marks)
    for cell in CELLS:
        turn = engine_turn(cell)
        for _ in range(WARM_UP):
            turn()
        marks.begin_section()
        for _ in range(TURNS):
            turn()
        marks.end_section()


if __name__ == "__main__":
    main()
