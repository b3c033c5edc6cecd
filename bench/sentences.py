"""Real sentences to translate."""

from pathlib import Path

DATA = Path(__file__).parent.parent / "tests" / "data"


def english(count: int) -> list[str]:
    """The first sentences of FLORES-200 dev and then of the held-out set, again from the beginning if need be."""
    sentences = flores() + heldout()
    return [sentences[index % len(sentences)] for index in range(count)]


def distinct(count: int) -> list[str]:
    """So many of them, no two of which are equal: bulk would translate those once."""
    sentences = flores() + heldout()
    numbers = (index // len(sentences) for index in range(count))
    return [f"({n}) {sentences[i % len(sentences)]}" if n else sentences[i] for i, n in enumerate(numbers)]


def flores(language: str = "en") -> list[str]:
    """The English or the Portuguese ("pt") side of FLORES-200 dev."""
    column = {"en": 0, "pt": 1}[language]
    return [line.split("\t")[column] for line in _lines("flores-dev.en-pt.tsv")]


def heldout(language: str = "en") -> list[str]:
    """The English or the Portuguese ("pt") side of the held-out documents."""
    column = {"en": 2, "pt": 3}[language]
    return [line.split("\t")[column] for line in _lines("heldout.en-pt.tsv")]


def _lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()
