"""`python -m bench.marked MARKS`: steps of the engine between marks, for `bench.instructions` to run under callgrind.

MARKS is the library of marks.c. Only what lies between two marks is counted, so that starting Python costs little.
"""

import argparse
import ctypes
from collections.abc import Callable
from pathlib import Path

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

ZOO = Path(__file__).parent.parent / "models" / "zoo" / "en-pt"
STEPS = 20
WARM_UP = 3
ROWS = (1, 32)
"""Of the running batch: what is counted, in this order."""
SOURCE_TOKENS = 28
TOKEN = 7


class Still:
    """A decoder that computes nothing and always says the same: what is left of a step is the engine's."""

    device = CPU
    row_tokens = 1024

    def encode(self, sources: object) -> list["Still"]:
        return [self] * len(sources)  # type: ignore[arg-type]

    @property
    def computed_tokens(self) -> float:
        return 0.0

    def mean(self) -> NDArray[np.float32]:
        return np.zeros(4, np.float32)

    def close(self) -> None:
        """Nothing to close."""

    def open_cache(self, rows: int) -> "StillCache":
        return StillCache()


class StillCache:
    """Counts its rows."""

    def __init__(self) -> None:
        self.live = 0
        self._found = Found(np.zeros((0, 1), np.int64), np.zeros((0, 1), np.float32))

    def join(self, source: Still) -> int:
        self.live += 1
        self._found = Found(np.full((self.live, 1), TOKEN), np.full((self.live, 1), -0.1, np.float32))
        return self.live - 1

    def begin_step(self, token_ids: object, ask: Ask) -> None:
        """Nothing to begin."""

    def end_step(self) -> Found:
        return self._found

    def take(self, parents: object) -> int:
        self.live = len(parents)  # type: ignore[arg-type]
        return 0


def engine_step(rows: int) -> Callable[[], object]:
    """A step of a running batch of greedy searches, but for the decoder's part."""
    still, zoo = Still(), Package.open(ZOO)
    batch: RunningBatch[Still] = RunningBatch(still, rows, Unobserved(), 0)
    rules = target_rules(zoo.manifest.graphs.vocabulary, zoo.manifest.generation)
    decoding = Decoding(max_new_tokens=500)
    source = (TOKEN,) * SOURCE_TOKENS
    batch.admit([Translate(source, lambda event: None, decoding=decoding, rules=rules) for _ in range(rows)])
    return batch.step


def main() -> None:
    """Takes the steps of every section, with a mark before and after them."""
    parser = argparse.ArgumentParser(prog="python -m bench.marked", description=__doc__)
    parser.add_argument("marks", metavar="MARKS", help="library of marks.c")
    marks = ctypes.CDLL(parser.parse_args().marks)
    for rows in ROWS:
        step = engine_step(rows)
        for _ in range(WARM_UP):
            step()
        marks.begin_section()
        for _ in range(STEPS):
            step()
        marks.end_section()


if __name__ == "__main__":
    main()
