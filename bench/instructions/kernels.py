"""Counts the instructions of our own operators, kernel by kernel: kernels/check/count.cpp under callgrind."""

import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

KERNELS = Path(__file__).parents[2] / "kernels"
SETS = {"x86_64": "avx2"}
"""Which instruction set is counted on a machine. valgrind knows no AVX512."""
LIMIT_S = 120


class NotCounted(Exception):
    """There is nothing to compare. The message says why."""


def machine() -> str:
    """What bounds of kernels are for: they hardly depend on the compiler, whose part are the loops."""
    return f"kernels {platform.machine()}"


def count_kernels() -> dict[str, int]:
    """Instructions of one call, by kernel and rows. Raises NotCounted where they cannot be counted."""
    instructions = SETS.get(platform.machine())
    if instructions is None:
        raise NotCounted(f"instructions of kernels are counted on {', '.join(SETS)}, and this is {platform.machine()}")
    for tool in ("valgrind", "make", "g++"):
        if shutil.which(tool) is None:
            raise NotCounted(f"there is no {tool} to count instructions with")
    with tempfile.TemporaryDirectory() as folder:
        build = ["make", "--silent", "-C", str(KERNELS), "count", f"SET={instructions}", f"BUILD={folder}", "CXX=g++"]
        made = subprocess.run(build, capture_output=True, text=True)
        if made.returncode != 0:
            raise NotCounted(f"count.cpp cannot be compiled: {made.stderr[-200:]}")
        out = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no"]
        program = str(Path(folder) / f"count-{instructions}")
        done = subprocess.run([*command, program], check=True, capture_output=True, text=True, timeout=LIMIT_S)
        names = done.stdout.splitlines()
        return {f"{instructions}, {name}": total(Path(f"{out}.{part}")) for part, name in enumerate(names, 1)}


def total(part: Path) -> int:
    """Of a section, as callgrind wrote it. Raises NotCounted where it did not."""
    found = re.search(r"(?m)^(?:totals|summary): (\d+)", part.read_text(encoding="utf-8"))
    if found is None:
        raise NotCounted(f"callgrind wrote no total into {part.name}")
    return int(found[1])
