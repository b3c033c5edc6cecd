"""`python -m bench.quality PACKAGE ...`: how good translations are, from a server that serves the package.

Of packages of one direction, it counts the texts that are the first one's. BLEU and chrF are sacrebleu's (BLEU with its
default tokeniser, 13a). See docs/benchmarks.md.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import sacrebleu

from bench.cpu.sides.ctranslate2 import ComputeType, Ctranslate2
from bench.cpu.turns import Player
from bench.cpu.work import Side
from bench.flags.values import beams, folder_at, package_at
from bench.pages.markdown import table
from bench.process import serving
from bench.sentences import flores, heldout
from dragoman import Client
from dragoman.results.translation import FinishReason
from models.package.folder import Package

TIMEOUT_S = 600.0
SETS = {"FLORES-200 dev": flores, "held-out documents": heldout}
RUNNING = 3
"""So many times running, a word or pair of words is a stutter."""


@dataclass(frozen=True)
class Quality:
    """Of the translations of one text."""

    bleu: float
    chrf: float
    stutters: int
    """Translations in which a word or a pair of words comes three times running, and in the source none does."""


def measure(translations: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> Quality:
    """Scores translations of sources."""
    pairs = zip(translations, sources, strict=True)
    return Quality(
        bleu=sacrebleu.corpus_bleu(translations, [references]).score,
        chrf=sacrebleu.corpus_chrf(translations, [references]).score,
        stutters=sum(stutters(translation) and not stutters(source) for translation, source in pairs),
    )


def stutters(text: str) -> bool:
    """Whether a word or a pair of words comes three times running."""
    words = re.findall(r"\w+", text.lower())
    return any(
        words[start : start + RUNNING * size] == words[start : start + size] * RUNNING
        for size in (1, 2)
        for start in range(len(words) - RUNNING * size + 1)
    )


@dataclass(frozen=True)
class Answers:
    """Of one engine to one text."""

    texts: list[str]
    cut: int | None
    """Answers that did not end by themselves; None where the engine does not say."""


Answer = Callable[[Sequence[str], int], Answers]
"""Translates sentences with so many beams."""


def languages(package: Path) -> tuple[str, str]:
    """Of sources and targets."""
    manifest = Package.open(package).manifest
    source, target = (tags[0][:2] for tags in (manifest.source_languages, manifest.target_languages))
    return source, target


@contextmanager
def served(package: Path) -> Iterator[Answer]:
    """A server of the package."""
    with serving("server", ["--package", str(package)]) as server, Client(server.target) as client:

        def answer(sources: Sequence[str], num_beams: int) -> Answers:
            found = client.translate(list(sources), num_beams=num_beams, timeout_s=TIMEOUT_S)
            cut = sum(translation.finish_reason is not FinishReason.END_TOKEN for translation in found)
            return Answers([translation.text for translation in found], cut)

        yield answer


@contextmanager
def peer(checkpoint: Path, folder: Path, compute_type: ComputeType) -> Iterator[Answer]:
    """CTranslate2, in a process of its own. folder: where its model is or comes to be."""
    player = Player(Side("", partial(Ctranslate2, checkpoint, folder, compute_type)))
    try:
        yield lambda sources, num_beams: Answers(player.answers(sources, num_beams), None)
    finally:
        player.close()


def score(
    name: str, direction: tuple[str, str], answer: Answer, beams: Sequence[int], first: dict[tuple[str, int], list[str]]
) -> list[list[str]]:
    """A row for each test set and beam size.

    first: what the first engine answered; empty for the first, and then filled
    """
    rows = []
    for set_name, sentences in SETS.items():
        sources, references = (sentences(language) for language in direction)
        for num_beams in beams:
            answers = answer(sources, num_beams)
            quality = measure(answers.texts, sources, references)
            same = first.setdefault((set_name, num_beams), answers.texts)
            equal = sum(one == other for one, other in zip(answers.texts, same, strict=True))
            rows.append(
                [
                    name,
                    *("-".join(direction), f"{set_name} ({len(sources)})"),
                    "greedy" if num_beams == 1 else f"beam {num_beams}",
                    *(f"{quality.bleu:.2f}", f"{quality.chrf:.2f}", str(equal), str(quality.stutters)),
                    "" if answers.cut is None else str(answers.cut),
                ]
            )
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument(
        "packages", nargs="+", type=package_at, metavar="PACKAGE", help="English to Portuguese, or back"
    )
    parser.add_argument("--num-beams", type=beams, nargs="+", default=[1, 4], metavar="N", help="default: 1 and 4")
    parser.add_argument(
        "--ctranslate2", type=folder_at, metavar="CHECKPOINT", help="compare with CTranslate2 in fp32 and int8 too"
    )
    options = parser.parse_args()
    first = dict[tuple[str, str], dict[tuple[str, int], list[str]]]()
    rows = []
    for package in options.packages:
        direction = languages(package)
        with served(package) as answer:
            rows += score(package.name, direction, answer, options.num_beams, first.setdefault(direction, {}))
    if options.ctranslate2 is not None:
        direction = languages(options.packages[0])
        types: tuple[ComputeType, ...] = get_args(ComputeType)
        with TemporaryDirectory() as folder:
            for compute_type in types:
                with peer(options.ctranslate2, Path(folder) / "model", compute_type) as answer:
                    name = f"CTranslate2 {compute_type}"
                    rows += score(name, direction, answer, options.num_beams, first[direction])
    header = ["engine", "direction", "text (sentences)", "search", "BLEU", "chrF", "as the first", "stutters", "cut"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
