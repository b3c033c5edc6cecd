"""The engine against CTranslate2, without any server: tokens a second at several batch sizes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.cpu.ctranslate2 import Ctranslate2
from bench.measure import alternate
from bench.sentences import english
from engine.devices.session import CPU
from engine.load import Limits, Loadable, load
from engine.observer import Observer
from engine.offline import decode
from engine.runner import Runner
from engine.targets import TargetRules
from models.decoding import Decoding
from models.package.folder import Package

WORKERS = 2


@dataclass(frozen=True)
class Cell:
    """One line of the table."""

    num_beams: int
    batch: int
    """Sentences decoded at a time by each worker."""
    sentences: int
    target: float
    """The least ratio that was asked for."""


# Enough sentences for some twenty full batches on each worker: in the last one places stay empty.
CELLS = (
    Cell(1, 1, 64, 1.3),
    Cell(1, 8, 320, 1.5),
    Cell(1, 32, 1280, 1.2),
    Cell(4, 1, 32, 1.3),
    Cell(4, 8, 160, 1.1),
    Cell(4, 32, 640, 1.05),
)


@dataclass(frozen=True)
class Result:
    """Tokens a second of both sides, the end tokens counted: medians."""

    cell: Cell
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


class OurEngine:
    """Our engine, fed directly."""

    def __init__(self, package: Package) -> None:
        self._model = Loadable.of(package)
        self.tokenizer = package.tokenizer()
        self.rules = self._model.rules

    def open(self, rows: int, observer: Observer | None = None) -> Runner:
        """Two workers of one thread, with so many rows each."""
        return load(self._model, CPU, Limits(rows, WORKERS), observer)

    def decoding(self, num_beams: int) -> Decoding:
        """What CTranslate2's defaults are, in our terms."""
        return Decoding(num_beams, 1, max_new_tokens=256, length_penalty=1.0, early_stopping=True)


def translate_all(runner: Runner, rules: TargetRules, sources: Sequence[Sequence[int]], decoding: Decoding) -> int:
    """Translates every source. Returns the number of target tokens."""
    asked = [(tuple(source), decoding) for source in sources]
    answers = decode(runner, rules, asked, window=len(asked))
    return sum(len(answer.hypotheses[0].token_ids) for answer in answers)


def run(package: Package, theirs: Ctranslate2, repeats: int) -> list[Result]:
    """Measures every cell."""
    ours = OurEngine(package)
    return [_measure(cell, ours, theirs, repeats) for cell in CELLS]


def _measure(cell: Cell, ours: OurEngine, theirs: Ctranslate2, repeats: int) -> Result:
    texts = english(cell.sentences)
    # CTranslate2 decodes sentences of similar length together; we take them as they come.
    sources, pieces = [ours.tokenizer.encode(text) for text in texts], [theirs.tokenize(text) for text in texts]
    decoding = ours.decoding(cell.num_beams)
    with ours.open(cell.batch * cell.num_beams) as runner:
        readings = alternate(
            {
                "ours": lambda: _rate(lambda: translate_all(runner, ours.rules, sources, decoding)),
                "theirs": lambda: _rate(lambda: theirs.translate_all(pieces, cell.num_beams, cell.batch)),
            },
            repeats,
        )
    return Result(cell, readings["ours"].median, readings["theirs"].median)


def _rate(translate: Callable[[], int]) -> float:
    """Tokens a second."""
    started = time.perf_counter()
    tokens = translate()
    return tokens / (time.perf_counter() - started)
