"""`python -m bench.options.before BEFORE..AFTER ...`: the engine of one revision beside that of another, by turns.

BEFORE and AFTER are revisions of this repository; without AFTER it is what is checked out. Each serves the package of
this name that it has in models/zoo, with kernels of its own, two workers of one thread, in a process of its own; no
request uses an option. Speeds are target tokens in a second of processor time. See docs/benchmarks.md.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.flags.values import folder_to_fill, whole
from bench.machine.noise import instructions
from bench.measure import alternate
from bench.pages.markdown import machine, table
from bench.process import Side, side
from bench.sentences import flores

ROOT = Path(__file__).parents[2]
TURNS = Path(__file__).with_name("engine_turns.py")
AFTER, BEFORE = "after", "before"
CELLS = {"greedy, 8": "8 1", "greedy, 32": "32 1", "beam 4, 8": "8 4"}
"""Sentences at a time on each worker and, after them, beams."""
ASKED = 0.98
SENTENCES, REPEATS = 256, 7


class Checkouts:
    """Revisions and their kernels in folders of their own; equal kernels are built once."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._built = folder, dict[str, Path]()

    def of(self, revision: str) -> Path:
        """Its folder. Empty: what is checked out here."""
        if not revision:
            return ROOT
        place = self._folder / _git("rev-parse", revision)
        if not place.exists():
            place.mkdir()
            archive = subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=True)
            subprocess.run(["tar", "--extract", "--directory", str(place)], input=archive.stdout, check=True)
            self._build(_git("rev-parse", f"{revision}:kernels"), place / "kernels")
        return place

    def _build(self, tree: str, kernels: Path) -> None:
        if tree in self._built:
            shutil.copytree(self._built[tree] / "lib", kernels / "lib")
        else:
            subprocess.run(["make", "--silent", "-C", str(kernels), "SETS=own"], check=True)
            self._built[tree] = kernels


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def revisions(given: str) -> tuple[str, str]:
    """What is before and after, the latter empty for what is checked out. Raises ArgumentTypeError."""
    before, dots, after = given.partition("..")
    if not before or not dots:
        raise argparse.ArgumentTypeError(f"{given!r} is no BEFORE..AFTER, such as HEAD~1..HEAD or HEAD~1..")
    for revision in filter(None, (before, after)):
        try:
            _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError as error:
            raise argparse.ArgumentTypeError(f"{revision!r} is no revision of this repository") from error
    return before, after


def tokens_a_second(engine: Side, cell: str) -> float:
    """A turn."""
    return float(engine.ask(cell))


def compare(engines: Mapping[str, Side], repeats: int) -> list[list[str]]:
    """Rows of the table."""
    rows = []
    for name, cell in CELLS.items():
        turns = {which: partial(tokens_a_second, engine, cell) for which, engine in engines.items()}
        series = alternate(turns, repeats)
        ratios = sorted(a / b for a, b in zip(series[AFTER].values, series[BEFORE].values, strict=True))
        spread = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        rows.append([name, f"{series[AFTER].median:,.0f}", f"{series[BEFORE].median:,.0f}", spread])
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.before", description=__doc__)
    parser.add_argument(
        "ranges", nargs="+", type=revisions, metavar="BEFORE..AFTER", help="REV~1..REV: what one commit costs"
    )
    parser.add_argument("--package", default="en-pt-int8", metavar="NAME", help="in models/zoo of both")
    parser.add_argument("--sentences", type=whole, default=SENTENCES, metavar="N", help=f"default: {SENTENCES}")
    parser.add_argument("--repeats", type=whole, default=REPEATS, metavar="N", help=f"turns; default: {REPEATS}")
    parser.add_argument("--checkouts", type=folder_to_fill, metavar="FOLDER", help="keeps them for another run")
    chosen = parser.parse_args()
    texts, rows = json.dumps(flores("en")[: chosen.sentences]), list[list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        checkouts = Checkouts((chosen.checkouts or Path(folder)).resolve())
        # All of them, before anything is measured.
        places = {"..".join(one): list(map(checkouts.of, one)) for one in chosen.ranges}
        for one, (before, after) in places.items():
            with ExitStack() as stack:
                engines = dict[str, Side]()
                for name, place in ((AFTER, after), (BEFORE, before)):
                    package = place / "models" / "zoo" / chosen.package
                    engines[name] = stack.enter_context(side(["-P", str(TURNS), str(package)], place))
                    engines[name].tell(texts)
                rows += [[one, *row] for row in compare(engines, chosen.repeats)]
    print(f"{machine()}, {instructions()}\n", flush=True)
    print(table([chosen.package, "search", AFTER, BEFORE, f"ratio, median and range (asked {ASKED:g})"], rows))


if __name__ == "__main__":
    main()
