"""Real English sentences to translate."""

from pathlib import Path

DATA = Path(__file__).parent.parent / "tests" / "data"


def english(count: int) -> list[str]:
    """The first sentences of FLORES-200 dev and then of the held-out set, again from the beginning if need be."""
    flores = [line.split("\t")[0] for line in _lines("flores-dev.en-pt.tsv")]
    sentences = flores + heldout()
    return [sentences[index % len(sentences)] for index in range(count)]


def heldout() -> list[str]:
    """The English side of the held-out documents."""
    return [line.split("\t")[2] for line in _lines("heldout.en-pt.tsv")]


def _lines(name: str) -> list[str]:
    return (DATA / name).read_text(encoding="utf-8").splitlines()
