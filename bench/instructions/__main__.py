"""`python -m bench.instructions`: counts instructions of a step of the engine, and of the kernels one by one.

Of the engine it is all but the decoder's part. It fails where there are more than there may be. Instructions do not
depend on what else the machine does, so a test can hold them. The bounds are in bounds.json: of the engine by
Python's version, of the kernels by the processor's kind. `--update` writes those of here. See docs/benchmarks.md.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.instructions.kernels import NotCounted, count_kernels, machine, total
from bench.instructions.marked import CELLS, TURNS
from bench.pages.markdown import table, verdict
from kernels.library import LibraryError, open_library

BOUNDS, MARKS = Path(__file__).with_name("bounds.json"), Path(__file__).with_name("marks.c")
SLACK = 1.15
"""A bound is so many times what was counted when it was written."""
LIMIT_S = 600


def python() -> str:
    """What bounds are for: another version has other byte code, another processor other kernels."""
    major, minor, _ = platform.python_version_tuple()
    return f"{platform.python_implementation()} {major}.{minor} {platform.machine()}"


def bounds(of: str) -> dict[str, int]:
    """Those of this Python, or of this processor's kernels. Raises NotCounted where there are none."""
    known: dict[str, dict[str, int]] = json.loads(BOUNDS.read_text(encoding="utf-8"))
    if of not in known:
        raise NotCounted(f"there are no bounds for {of}; there are for {', '.join(known)}: --update adds them")
    return known[of]


def count() -> dict[str, int]:
    """Instructions of a step, by the name of what they are of. Raises NotCounted where there is no counting."""
    try:
        open_library()
    except LibraryError as error:
        raise NotCounted(f"a part of the engine's steps is not there to be counted: {error}") from error
    valgrind = shutil.which("valgrind")
    if valgrind is None or shutil.which("cc") is None:
        raise NotCounted(f"there is no {'C compiler' if valgrind else 'valgrind'} to count instructions with")
    with tempfile.TemporaryDirectory() as folder:
        out, marks = Path(folder) / "out", Path(folder) / "marks.so"
        build = subprocess.run(["cc", "-shared", "-fPIC", "-O2", str(MARKS), "-o", str(marks)], capture_output=True)
        if build.returncode != 0:
            raise NotCounted(f"marks.c cannot be compiled: {build.stderr.decode(errors='replace')[-200:]}")
        command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no"]
        subprocess.run(
            [*command, sys.executable, "-m", "bench.instructions.marked", str(marks)],
            check=True,
            capture_output=True,
            timeout=LIMIT_S,
            # One order of sets and dictionaries, and no thread that waits by spinning.
            env=os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )
        parts = [total(Path(f"{out}.{section + 1}")) for section in range(len(CELLS))]
    return {cell.name: part // (TURNS * cell.steps) for cell, part in zip(CELLS, parts, strict=True)}


def update(of: str, counted: dict[str, int]) -> None:
    """Makes what was counted, and some more, the bounds of this Python, or of this processor's kernels."""
    known = json.loads(BOUNDS.read_text(encoding="utf-8")) if BOUNDS.exists() else {}
    known[of] = {name: round(SLACK * value) for name, value in counted.items()}
    BOUNDS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Returns 0 if everything is within its bound, or nothing could be counted; else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write what is counted, and 15 %% more, as the bounds")
    options = parser.parse_args()
    counts: list[tuple[str, Callable[[], dict[str, int]]]] = [(python(), count), (machine(), count_kernels)]
    return max([compare(of, counting, options.update) for of, counting in counts])


def compare(of: str, counting: Callable[[], dict[str, int]], updates: bool) -> int:
    """Prints what is counted, beside its bounds. Returns 1 where it is more, else 0."""
    try:
        counted = counting()
        if updates:
            update(of, counted)
        most = bounds(of)
    except NotCounted as reason:
        print(f"skipped: {reason}")
        return 0
    rows = [
        [name, f"{value:,}", f"{most[name]:,}" if name in most else "", verdict(value <= most.get(name, value))]
        for name, value in counted.items()
    ]
    print(table([f"instructions, {of}", "counted", "at most", ""], rows))
    return int(any(value > most.get(name, value) for name, value in counted.items()))


if __name__ == "__main__":
    sys.exit(main())
