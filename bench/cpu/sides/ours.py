"""Our engine, fed directly: two workers of one thread."""

import gc
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.cpu.work import MAX_TOKENS, WORKERS, Work
from engine.devices.session import CPU
from engine.loading.load import Kernels, Limits, Loadable, load
from engine.observer import Observer
from engine.offline import decode
from engine.request import Finished
from engine.runner import Runner
from engine.targets import TargetRules
from models.decoding import Decoding
from models.package.folder import Package


class OurEngine:
    """A package, loaded."""

    def __init__(self, package: Package, kernels: Kernels = "auto", workers: int = WORKERS) -> None:
        self._model, self._kernels, self._workers = Loadable.of(package), kernels, workers
        self.tokenizer = package.tokenizer()
        self.rules = self._model.rules

    def open(self, rows: int, observer: Observer | None = None) -> Runner:
        """With so many rows for each worker. Raises DeviceError where kernels are required and cannot run."""
        return load(self._model, CPU, Limits(rows, self._workers), observer, self._kernels)

    def decoding(self, num_beams: int, target_tokens: int = MAX_TOKENS) -> Decoding:
        """What CTranslate2's defaults are, in our terms."""
        return Decoding(num_beams, 1, max_new_tokens=target_tokens, length_penalty=1.0, early_stopping=True)


def translate_all(runner: Runner, rules: TargetRules, sources: Sequence[Sequence[int]], decoding: Decoding) -> int:
    """Translates every source. Returns the number of target tokens."""
    return count(answers(runner, rules, [(tuple(source), decoding) for source in sources]))


def answers(
    runner: Runner,
    rules: TargetRules,
    asked: Sequence[tuple[tuple[int, ...], Decoding]],
    outstanding: int | None = None,
) -> list[Finished]:
    """So many sources are with the engine at a time. None: all. Raises what the engine failed with."""
    return list(decode(runner, rules, asked, window=outstanding or len(asked)))


def count(found: Sequence[Finished]) -> int:
    """Target tokens."""
    return sum(len(answer.hypotheses[0].token_ids) for answer in found)


class Ours:
    """A side."""

    def __init__(self, package: Path, kernels: Kernels, workers: int = WORKERS) -> None:
        """Raises FileNotFoundError, or DeviceError where kernels are required and cannot run."""
        if not package.exists():
            raise FileNotFoundError(f"there is no package {package.name}: python -m export makes it")
        self._engine = OurEngine(Package.open(package), kernels, workers)
        with self._engine.open(rows=1):
            pass  # whether it can
        self._closing = ExitStack()
        self._runner: Runner
        self._work: Work
        self._asked: list[tuple[tuple[int, ...], Decoding]]

    def prepare(self, work: Work) -> str:
        self._open(work.batch * work.num_beams)
        self._work, self._asked = work, self._encode(work)
        self.translate()
        return ""

    def translate(self) -> int:
        asked = self._encode(self._work) if self._work.from_text else self._asked
        found = answers(self._runner, self._engine.rules, asked, self._work.outstanding)
        if self._work.from_text:
            self._decode(found)
        return count(found)

    def answers(self, texts: Sequence[str], num_beams: int) -> list[str]:
        self._open(32 * num_beams)
        return self._decode(answers(self._runner, self._engine.rules, self._encode(Work(tuple(texts), num_beams))))

    def _open(self, rows: int) -> None:
        self._closing.close()
        self._runner = self._closing.enter_context(self._engine.open(rows))
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as the server does: what is loaded stays

    def _encode(self, work: Work) -> list[tuple[tuple[int, ...], Decoding]]:
        most = work.target_tokens or [MAX_TOKENS] * len(work.texts)
        return [
            (tuple(self._engine.tokenizer.encode(text)), self._engine.decoding(work.num_beams, tokens))
            for text, tokens in zip(work.texts, most, strict=True)
        ]

    def _decode(self, found: Sequence[Finished]) -> list[str]:
        return [self._engine.tokenizer.decode(answer.hypotheses[0].token_ids) for answer in found]
