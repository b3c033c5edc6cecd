"""`python -m bench.instructions.marked MARKS`: steps of the engine between marks, to run under callgrind.

MARKS is the library of marks.c. Only what lies between two marks is counted, so that starting Python costs little.
"""

import argparse
import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from engine.batch.running_batch import RunningBatch
from engine.decoder import Ask, Found
from engine.devices.session import CPU
from engine.observer import Unobserved
from engine.request import Translate
from engine.targets import target_rules
from models.decoding import Decoding
from models.package.folder import Package

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
STEPS = 20
WARM_UP = 3
CELLS = ((1, 1), (1, 32), (4, 1), (4, 32))
"""Beams, and sentences of the running batch: what is counted, in this order."""
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
        self.live = self._best = 0
        self._tokens = chance.choice(TOKENS, (rows, MOST_CANDIDATES))
        self._log_probs = -np.sort(chance.random((rows, MOST_CANDIDATES), np.float32))

    def join(self, source: Still) -> int:
        self.live += 1
        return self.live - 1

    def begin_step(self, token_ids: object, ask: Ask) -> None:
        self._best = ask.best

    def end_step(self) -> Found:
        return Found(self._tokens[: self.live, : self._best], self._log_probs[: self.live, : self._best])

    def take(self, parents: object) -> int:
        self.live = len(parents)  # type: ignore[arg-type]
        return 0


def engine_step(num_beams: int, sentences: int) -> Callable[[], object]:
    """A step of a running batch, but for the decoder's part. One a turn: there is a row for somebody who waits."""
    still, zoo, rows = Still(), Package.open(ZOO), num_beams * sentences + 1
    batch: RunningBatch[Still] = RunningBatch(still, rows, Unobserved(), 0, called=lambda: True)
    rules = target_rules(zoo.manifest.graphs.vocabulary, zoo.manifest.generation)
    decoding = Decoding(num_beams=num_beams, max_new_tokens=500)
    source = (TOKENS[0],) * SOURCE_TOKENS
    batch.admit([Translate(source, lambda event: None, decoding=decoding, rules=rules) for _ in range(sentences)])
    return batch.step


def main() -> None:
    """Takes the steps of every section, with a mark before and after them."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions.marked", description=__doc__)
    parser.add_argument("marks", metavar="MARKS", help="library of marks.c")
    marks = ctypes.CDLL(parser.parse_args().marks)
    for num_beams, sentences in CELLS:
        step = engine_step(num_beams, sentences)
        for _ in range(WARM_UP):
            step()
        marks.begin_section()
        for _ in range(STEPS):
            step()
        marks.end_section()


if __name__ == "__main__":
    main()
