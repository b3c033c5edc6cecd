"""Instruction sets translate alike in 8 bits: whole searches, greedy and with beams.

Those that fuse multiply-adds give the same tokens and scores. Portable C++ rounds a product and a sum each: a number of
8 bits that comes out otherwise by that turns round what is nearly equal, now and then (kernels/README.md).
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.library import Library, LibraryError
from tests.kernels.conftest import library
from tests.kernels.translations import SENTENCES, Answers

__all__ = ["library"]

ROOT = Path(__file__).parents[2]
FUSED = ("avx512vnni", "avx2", "avxvnni", "neon_dotprod")
"""The best of a processor is what others are compared with."""
LEAST_EQUAL = 0.75
"""Share of the answers by portable C++ that have the same tokens: 10 of 12 are on a processor with AVX2."""
SCORE_ATOL = 0.03
"""Of a mean log-probability by portable C++; 0.011 was seen."""


def said(isa: str) -> Answers:
    """By a process of its own."""
    command = [sys.executable, "-m", "tests.kernels.translations", isa]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: Answers = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def best(library: Library) -> Answers:
    """By the best instructions of this processor."""
    return said(library.isa)


@pytest.mark.parametrize("isa", FUSED)
def test_what_fuses_multiply_adds_says_the_same(library: Library, best: Answers, isa: str) -> None:
    if isa == library.isa or library.isa == "portable" or not has(library, isa):
        pytest.skip(f"{isa} is the best of this processor, or it has none")
    assert said(isa) == best


def test_portable_says_nearly_the_same(library: Library, best: Answers) -> None:
    if library.isa == "portable":
        pytest.skip("this processor has nothing better than portable")
    found = said("portable")
    equal = sum(ours == theirs for (ours, _), (theirs, _) in zip(found, best, strict=True))
    assert equal >= LEAST_EQUAL * len(best)
    assert [score for _, score in found] == pytest.approx([score for _, score in best], abs=SCORE_ATOL, rel=0)
    assert len({tuple(tokens) for tokens, _ in found}) >= SENTENCES, "else equal tokens would say little"


def has(library: Library, isa: str) -> bool:
    """Whether the library has instructions that this processor has. This process makes no session afterwards."""
    chosen = library.isa
    try:
        library.use(isa)
    except LibraryError:
        return False
    library.use(chosen)
    return True
