"""`python -m bench.options.before --revision REV`: the engine of today beside that of an earlier revision, by turns.

Both serve the package of this name that their own checkout has in models/zoo, with kernels of their own, two workers of
one thread each, in a process each; no request uses an option. Speeds are target tokens in a second of processor time.
See docs/benchmarks.md.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.machine.noise import instructions
from bench.measure import alternate
from bench.pages.markdown import machine, table
from bench.process import Side, side
from bench.sentences import flores

ROOT = Path(__file__).parents[2]
TURNS = Path(__file__).with_name("engine_turns.py")
NOW, BEFORE = "now", "before"
CELLS = {"greedy, 8": "8 1", "greedy, 32": "32 1", "beam 4, 8": "8 4"}
"""Sentences at a time on each worker and, after them, beams."""
ASKED = 0.98
SENTENCES, REPEATS = 256, 7


def check_out(revision: str, folder: Path) -> None:
    """Its files into a folder, and its kernels built."""
    archive = subprocess.Popen(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "--extract", "--directory", str(folder)], stdin=archive.stdout, check=True)
    if archive.wait():
        raise RuntimeError(f"git has no revision {revision} here")
    subprocess.run(["make", "--silent", "-C", "kernels", "SETS=own"], cwd=folder, check=True)


def tokens_a_second(engine: Side, cell: str) -> float:
    """A turn."""
    return float(engine.ask(cell))


def compare(engines: Mapping[str, Side], repeats: int) -> list[list[str]]:
    """Rows of the table."""
    rows = []
    for name, cell in CELLS.items():
        turns = {which: partial(tokens_a_second, engine, cell) for which, engine in engines.items()}
        series = alternate(turns, repeats)
        ratios = sorted(a / b for a, b in zip(series[NOW].values, series[BEFORE].values, strict=True))
        spread = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        rows.append([name, f"{series[NOW].median:,.0f}", f"{series[BEFORE].median:,.0f}", spread])
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.before", description=__doc__)
    parser.add_argument("--revision", required=True, metavar="REV", help="of this repository, to compare with")
    parser.add_argument("--package", default="en-pt-int8", metavar="NAME", help="in models/zoo of both")
    parser.add_argument("--sentences", type=int, default=SENTENCES, metavar="N", help=f"default: {SENTENCES}")
    parser.add_argument("--repeats", type=int, default=REPEATS, metavar="N", help=f"turns; default: {REPEATS}")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check_out(chosen.revision, folder)
        engines = {}
        for name, place in ((NOW, ROOT), (BEFORE, folder)):
            package = place / "models" / "zoo" / chosen.package
            engines[name] = stack.enter_context(side(["-P", str(TURNS), str(package)], place))
            engines[name].tell(json.dumps(flores("en")[: chosen.sentences]))
        rows = compare(engines, chosen.repeats)
    print(f"{machine()}, {instructions()}\n", flush=True)
    print(table([chosen.package, "tokens/s", "before", f"ratio, median and range (asked {ASKED:g})"], rows))


if __name__ == "__main__":
    main()
