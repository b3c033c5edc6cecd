"""Every instruction set of this machine gives the same translations in 8 bits, tokens and scores of whole searches.

Those that the processor lacks run in plain C++ (`EMULATED=1`, see kernels/README.md): of AVX512 and VNNI, all but the
instructions' own encoding. An instruction set is chosen once in a process, so each has a process of its own.
"""

import json
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from bench.sentences import flores
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.native import library as opening
from engine.offline import decode
from kernels.library import LIBRARY, Library, open_library
from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import ZOO
from tests.kernels.conftest import library

__all__ = ["library"]

pytestmark = pytest.mark.timeout(600)  # a compiler that has to share its core takes minutes

ROOT = Path(__file__).parents[2]
SENTENCES = 6
SEARCHES = [Decoding(max_new_tokens=128), Decoding(num_beams=4, num_return_sequences=4, max_new_tokens=128)]
SCORE_ATOL = 1e-4
"""Fused multiply-adds round once where others round twice."""
EMULATED = ("avxvnni", "avx512vnni")

Answers = list[list[tuple[list[int], float]]]
"""Tokens and score of each hypothesis, of each search and sentence."""


def answers(path: Path, isa: str) -> Answers:
    """Of a library by its instructions. Once in a process."""
    open_library(path).use(isa)
    opening.open_library = partial(open_library, path)
    package = Package.open(ZOO.parent / "en-pt-int8")
    model, tokenizer = Loadable.of(package), package.tokenizer()
    sources = [tuple(tokenizer.encode(text)) for text in sorted(flores(), key=len)[:: 900 // SENTENCES][:SENTENCES]]
    asked = [(source, decoding) for decoding in SEARCHES for source in sources]
    with load(model, CPU, Limits(8, 1), kernels="required") as runner:
        found = decode(runner, model.rules, asked)
        return [[(list(one.token_ids), one.score) for one in answer.hypotheses] for answer in found]


def asked(path: Path, isa: str) -> Answers:
    """The same, by a process of its own."""
    command = [sys.executable, "-m", "tests.kernels.test_same_translations", str(path), isa]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: Answers = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Same:
    """What all must say."""

    expected: Answers

    def hold(self, found: Answers) -> None:
        assert [[tokens for tokens, _ in one] for one in found] == [
            [tokens for tokens, _ in one] for one in self.expected
        ]
        for ours, theirs in zip(found, self.expected, strict=True):
            assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=SCORE_ATOL, rel=0)


@pytest.fixture(scope="module")
def same(library: Library) -> Same:
    """By the best instructions of this processor."""
    expected = asked(LIBRARY, library.isa)
    assert len({tuple(one[0][0]) for one in expected[:SENTENCES]}) == SENTENCES, "else equal tokens would say little"
    return Same(expected)


def test_portable(library: Library, same: Same) -> None:
    if library.isa == "portable":
        pytest.skip("this processor has nothing better than portable")
    same.hold(asked(LIBRARY, "portable"))


def test_emulated(library: Library, same: Same, tmp_path: Path) -> None:
    if platform.machine() != "x86_64" or library.isa == "portable":
        pytest.skip("plain C++ stands in for instructions beside those of AVX2 only")
    for tool in ("make", "g++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    path = tmp_path / LIBRARY.name
    sets = f"SETS={' '.join(EMULATED)}"
    # Little is computed: a quarter of the compiler's time at -O3.
    flags = ["EMULATED=1", "OPTIMIZE=-O1"]
    subprocess.run(
        ["make", "-s", "-C", str(ROOT / "kernels"), *flags, sets, f"BUILD={tmp_path}", f"LIBRARY={path}"], check=True
    )
    for isa in EMULATED:
        same.hold(asked(path, isa))


if __name__ == "__main__":
    json.dump(answers(Path(sys.argv[1]), sys.argv[2]), sys.stdout)
