"""Packages of several systems translate a text, greedily, in turns, one worker each."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.measure import alternate
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from models.package.folder import Package

ROWS = 32
"""Sentences at once."""
REPEATS = 7

Took = Callable[[Callable[[], object]], float]
"""Seconds that a piece of work takes."""


@dataclass(frozen=True)
class Served:
    """What a package made of a text."""

    translations: list[str]
    tokens: int
    """Of the targets, their end tokens included."""
    seconds: float
    """For all of them, the median."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def serve(packages: Sequence[Path], texts: Sequence[str], took: Took) -> list[Served]:
    """In the order of the packages, whose folders' names may be equal."""
    with ExitStack() as stack:
        work = [_Work(folder, texts, stack) for folder in packages]
        answers = [each() for each in work]
        series = alternate({str(index): partial(took, each) for index, each in enumerate(work)}, REPEATS)
    found = zip(work, answers, series.values(), strict=True)
    return [Served(each.texts(ids), sum(map(len, ids)), of.median) for each, ids, of in found]


class _Work:
    """The greedy translation of some texts by a package."""

    def __init__(self, folder: Path, texts: Sequence[str], stack: ExitStack) -> None:
        package = Package.open(folder)
        self._tokenizer, self._model = package.tokenizer(), Loadable.of(package)
        decoding = replace(self._model.generation.decoding(), num_beams=1)
        self._requests = [(tuple(self._tokenizer.encode(text)), decoding) for text in texts]
        self._runner = stack.enter_context(load(self._model, CPU, Limits(rows=ROWS, workers=1)))

    def __call__(self) -> list[tuple[int, ...]]:
        answers = decode(self._runner, self._model.rules, self._requests)
        return [answer.hypotheses[0].token_ids for answer in answers]

    def texts(self, answers: Sequence[tuple[int, ...]]) -> list[str]:
        return [self._tokenizer.decode(ids) for ids in answers]
