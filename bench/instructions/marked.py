"""`python -m bench.instructions.marked MARKS`: steps of the engine between marks, to run under callgrind.

MARKS is the library of marks.c. Only what lies between two marks is counted, so that starting Python costs little.
"""

import argparse
import ctypes
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from engine.batch import running_batch
from engine.batch.running_batch import RunningBatch
from engine.decoder import Ask, Found
from engine.devices.session import CPU
from engine.observer import Unobserved
from engine.request import Translate
from engine.targets import target_rules
from models.decoding import Decoding
from models.package.folder import Package

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
TURNS = 20
WARM_UP = 3
CELLS = ((1, 1, 1), (1, 32, 1), (4, 1, 1), (4, 32, 1), (1, 1, 8), (4, 1, 8), (4, 32, 8))
"""Beams, sentences of the running batch, and steps of a turn: what is counted, in this order."""
SOURCE_TOKENS = 28
TOKENS = range(100, 200)
"""What is found. None of them ends a hypothesis."""
MOST_CANDIDATES = 8


class Still:
    """A decoder that computes nothing and says the same at every step: what is left of a step is the engine's."""

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
        return StillCache(rows)


class StillCache:
    """Counts its rows. What is found of them differs from row to row, so that beams change their order."""

    def __init__(self, rows: int) -> None:
        chance = np.random.default_rng(1)
        self.live, self._of = 0, (0, 0)
        self._tokens = chance.choice(TOKENS, (rows, MOST_CANDIDATES))
        self._log_probs = -np.sort(chance.random((rows, MOST_CANDIDATES), np.float32))

    def join(self, source: Still) -> int:
        self.live += 1
        return self.live - 1

    def begin_step(self, token_ids: object, ask: Ask) -> None:
        if self._of != (self.live, ask.best):  # as real ones, it finds it in the same memory at every step
            self._of = self.live, ask.best
            part = slice(self.live), slice(ask.best)
            self._found = Found(self._tokens[part].copy(), self._log_probs[part].copy())

    def end_step(self) -> Found:
        return self._found

    def take(self, parents: object) -> int:
        self.live = len(parents)  # type: ignore[arg-type]
        return 0


def engine_turn(num_beams: int, sentences: int, steps: int) -> Callable[[], object]:
    """So many steps of a running batch, but for the decoder's part: then somebody waits, for whom there is a row."""
    still, zoo, rows, looks = Still(), Package.open(ZOO), num_beams * sentences + 1, count(1)
    running_batch.TOGETHER_S = 1000.0  # by the clock, it would be up to the machine how many they are
    batch: RunningBatch[Still] = RunningBatch(still, rows, Unobserved(), 0, called=lambda: next(looks) % steps == 0)
    rules = target_rules(zoo.manifest.graphs.vocabulary, zoo.manifest.generation)
    decoding = Decoding(num_beams=num_beams, max_new_tokens=500)
    source = (TOKENS[0],) * SOURCE_TOKENS
    batch.admit([Translate(source, lambda event: None, decoding=decoding, rules=rules) for _ in range(sentences)])
    return batch.step


def main() -> None:
    """Takes the turns of every section, with a mark before and after them."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions.marked", description=__doc__)
    parser.add_argument("marks", metavar="MARKS", help="library of marks.c")
    marks = ctypes.CDLL(parser.parse_args().marks)
    for cell in CELLS:
        turn = engine_turn(*cell)
        for _ in range(WARM_UP):
            turn()
        marks.begin_section()
        for _ in range(TURNS):
            turn()
        marks.end_section()


if __name__ == "__main__":
    main()
