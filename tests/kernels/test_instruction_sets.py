"""Every instruction set's kernels, against plain C++ and double precision: natively, or emulated."""

import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)  # a compiler that has to share its core takes minutes

KERNELS = Path(__file__).parents[2] / "kernels"
FLAGS = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []


@dataclass(frozen=True)
class Way:
    """How a program for one instruction set is built and run here."""

    name: str
    machine: str
    needs: tuple[str, ...] = ()
    emulated: bool = False

    @property
    def id(self) -> str:
        return f"{self.name}-{self.machine}" + ("-emulated" if self.emulated else "")


AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni")

WAYS = [
    Way("portable", "x86_64"),
    Way("avx2", "x86_64", ("avx2", "fma", "f16c")),
    Way("avxvnni", "x86_64", ("avx2", "fma", "f16c", "avx_vnni")),
    Way("avxvnni", "x86_64", ("avx2", "fma", "f16c"), emulated=True),
    Way("avx512vnni", "x86_64", AVX512),
    Way("avx512vnni", "x86_64", ("avx2", "fma", "f16c"), emulated=True),
    Way("amx", "x86_64", (*AVX512, "amx_tile", "amx_int8")),
    Way("amx", "x86_64", ("avx2", "fma", "f16c"), emulated=True),
    Way("portable", "aarch64"),
    Way("neon_dotprod", "aarch64", ("asimddp",)),
    Way("neon_i8mm", "aarch64", ("asimddp", "i8mm")),
]


def _run(way: Way, folder: Path) -> str:
    """What the program says; skips where it can be neither built nor run."""
    native = platform.machine() == way.machine
    compiler = "g++" if native else f"{way.machine}-linux-gnu-g++"
    emulator = [] if native else [f"qemu-{way.machine}-static", "-cpu", "max"]
    for tool in ["make", compiler, *emulator[:1]]:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    missing = [flag for flag in way.needs if flag not in FLAGS]
    if native and missing:
        pytest.skip(f"this processor has no {', '.join(missing)}")
    arguments = [f"SET={way.name}", f"MACHINE={way.machine}", f"CXX={compiler}", f"BUILD={folder}"]
    emulate = ["EMULATED=1"] if way.emulated else []
    subprocess.run(["make", "-s", "-C", str(KERNELS), "check", *arguments, *emulate], check=True)
    program = folder / f"check-{way.name}{'-emulated' if way.emulated else ''}"
    done = subprocess.run([*emulator, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def _whole_numbers(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith(("products", "whole numbers"))]


@pytest.fixture(scope="module")
def whole_numbers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Way], list[str]]:
    """Of a way's program, which is built and run once."""
    return cache(lambda way: _whole_numbers(_run(way, tmp_path_factory.mktemp(way.name))))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.id)
def test_whole_numbers_are_equal_and_floats_within_their_bounds(
    way: Way, whole_numbers: Callable[[Way], list[str]]
) -> None:
    portable = whole_numbers(Way("portable", platform.machine()))
    assert len(portable) == 2
    assert whole_numbers(way) == portable
