"""Every instruction set of this processor gives the same translations in 8 bits: whole searches, greedy and beams.

Scores are not the same. Portable C++ rounds a product and a sum where others round once, and a number of 8 bits that
comes out otherwise by that moves a log-probability by a hundredth (kernels/README.md).
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.library import LIBRARY, Library, LibraryError
from tests.kernels.conftest import library
from tests.kernels.translations import SENTENCES, Answers

__all__ = ["library"]

ROOT = Path(__file__).parents[2]
OTHERS = ("portable", "avx2", "avxvnni", "neon_dotprod")
"""The best of a processor is what others are compared with."""
SCORE_ATOL = 0.03
"""Of a mean log-probability; 0.011 was the most that was seen."""


def said(isa: str) -> Answers:
    """By a process of its own."""
    command = [sys.executable, "-m", "tests.kernels.translations", str(LIBRARY), isa]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: Answers = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def best(library: Library) -> Answers:
    """By the best instructions of this processor."""
    return said(library.isa)


@pytest.mark.parametrize("isa", OTHERS)
def test_other_instructions_translate_alike(library: Library, best: Answers, isa: str) -> None:
    if isa == library.isa or not has(library, isa):
        pytest.skip(f"{isa} is the best of this processor, or it has none")
    found = said(isa)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in best]
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
