"""The engine against CTranslate2, without any server: tokens a second at several batch sizes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue

from prometheus_client import CollectorRegistry

from bench.cpu.ctranslate2 import Ctranslate2
from bench.measure import alternate
from bench.sentences import english
from engine.cpu.decoder import CpuDecoder, CpuSource
from engine.request import Event, Failed, Finished, Translate
from engine.runner import Runner
from engine.search import EndRules
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.sentencepiece_pair import Tokenizer
from server.telemetry.metrics import Metrics

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
    """The scheduler and its engines, fed directly."""

    def __init__(self, package: Package) -> None:
        manifest, model = package.manifest, package.manifest.model
        self._generation, self._model = manifest.generation, model
        self.tokenizer = Tokenizer.load(package.folder, manifest.tokenizer)
        self.decoder = CpuDecoder(
            package.folder / manifest.encoder_graph,
            package.folder / manifest.decoder_graph,
            model,
            model.max_positions,
            model.max_positions,
            package.choice(),
        )

    def scheduler(self, max_rows: int, metrics: Metrics | None = None) -> Runner[CpuSource]:
        """Two workers of one thread, with so many rows each. Their metrics, unless given, nobody sees."""
        rules = EndRules(self._model.end_id, self._generation.forced_end_id, self._generation.suppressed_ids)
        metrics = metrics or Metrics(CollectorRegistry())
        return Runner(
            self.decoder, rules, self._model.decoder_start_id, WORKERS, max_rows, metrics, on_crash=lambda error: None
        )

    def decoding(self, num_beams: int) -> Decoding:
        """What CTranslate2's defaults are, in our terms."""
        return Decoding(num_beams, 1, max_new_tokens=256, length_penalty=1.0, early_stopping=True)


def translate_all(scheduler: Runner[CpuSource], sources: Sequence[Sequence[int]], decoding: Decoding) -> int:
    """Translates every source. Returns the number of target tokens."""
    events: SimpleQueue[Event] = SimpleQueue()
    for source in sources:
        scheduler.submit(Translate(tuple(source), events.put, decoding=decoding))
    return sum(_tokens(events.get()) for _ in sources)


def _tokens(event: Event) -> int:
    if isinstance(event, Failed):
        raise event.error
    assert isinstance(event, Finished)
    return len(event.hypotheses[0].token_ids)


def run(package: Package, theirs: Ctranslate2, repeats: int) -> list[Result]:
    """Measures every cell."""
    ours = OurEngine(package)
    return [_measure(cell, ours, theirs, repeats) for cell in CELLS]


def _measure(cell: Cell, ours: OurEngine, theirs: Ctranslate2, repeats: int) -> Result:
    texts = english(cell.sentences)
    # CTranslate2 decodes sentences of similar length together; we take them as they come.
    sources, pieces = [ours.tokenizer.encode(text) for text in texts], [theirs.tokenize(text) for text in texts]
    with ours.scheduler(max_rows=cell.batch * cell.num_beams) as scheduler:
        readings = alternate(
            {
                "ours": lambda: _rate(lambda: translate_all(scheduler, sources, ours.decoding(cell.num_beams))),
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
