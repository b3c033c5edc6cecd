"""`python -m bench.quality PACKAGE ...`: how good translations are, from a server that serves the package.

BLEU and chrF are sacrebleu's (BLEU with its default tokeniser, 13a). See docs/benchmarks.md.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sacrebleu

from bench.markdown import table
from bench.process import serving
from bench.sentences import flores, heldout
from dragoman import Client
from dragoman.results import FinishReason
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


def score(package: Path, beams: Sequence[int]) -> list[list[str]]:
    """A row for each test set and beam size, in the package's direction."""
    manifest = Package.open(package).manifest
    source, target = (languages[0][:2] for languages in (manifest.source_languages, manifest.target_languages))
    rows = []
    with serving("server", ["--package", str(package)]) as server, Client(server.target) as client:
        for name, sentences in SETS.items():
            sources, references = sentences(source), sentences(target)
            for num_beams in beams:
                found = client.translate(sources, num_beams=num_beams, timeout_s=TIMEOUT_S)
                quality = measure([translation.text for translation in found], sources, references)
                cut = sum(translation.finish_reason is not FinishReason.END_TOKEN for translation in found)
                rows.append(
                    [
                        *(f"{source}-{target}", f"{name} ({len(sources)})"),
                        "greedy" if num_beams == 1 else f"beam {num_beams}",
                        *(f"{quality.bleu:.2f}", f"{quality.chrf:.2f}", str(quality.stutters), str(cut)),
                    ]
                )
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("packages", nargs="+", type=Path, metavar="PACKAGE", help="English to Portuguese, or back")
    parser.add_argument("--num-beams", type=int, nargs="+", default=[1, 4], metavar="N", help="default: 1 and 4")
    options = parser.parse_args()
    rows = [row for package in options.packages for row in score(package, options.num_beams)]
    print(table(["direction", "text (sentences)", "search", "BLEU", "chrF", "stutters", "cut"], rows))


if __name__ == "__main__":
    main()
