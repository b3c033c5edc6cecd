"""The library: what opens it, what it does to caches, and whom it refuses."""

import ctypes
import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kernels.library import OPERATORS, Buffers, Library, LibraryError, open_library
from tests.kernels.node import Array
from tests.kernels.test_attention import by_position, to_blocks
from tests.kernels.test_best_tokens import OutputLayer, hidden, ranks
from tests.kernels.test_quant_linear import Layer

ROOT = Path(__file__).parents[2]


def test_a_library_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"not built .*missing.*make kernels"):
        open_library(tmp_path / "libdragoman.so")


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_text("none")
    with pytest.raises(LibraryError, match="no library of kernels for this machine"):
        open_library(tmp_path / "lib.so")


def test_a_library_of_something_else() -> None:
    import _ctypes

    with pytest.raises(LibraryError, match="no library of kernels for this machine"):
        open_library(Path(_ctypes.__file__))


def test_a_library_of_other_operators(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.operators == OPERATORS
    monkeypatch.setattr("kernels.library.OPERATORS", 7)
    with pytest.raises(LibraryError, match=r"version 2, not 7: make kernels"):
        open_library(library.path)


def test_a_library_of_another_memory(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.library.LAYOUT", 7)
    with pytest.raises(LibraryError, match=r"layout 3, not 7: make kernels"):
        open_library(library.path)


def test_a_library_for_other_processors(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "isa", "")
    with pytest.raises(LibraryError, match="was built for other processors: make kernels"):
        open_library(library.path)


class ApiBase(ctypes.Structure):
    """OrtApiBase, of a runtime that there is not."""

    _fields_ = (
        ("get_api", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)),
        ("version", ctypes.CFUNCTYPE(ctypes.c_void_p)),
    )


@pytest.mark.parametrize(("newest", "version", "said"), [(15, b"1.15.1", b"1.16 or newer"), (99, b"2.0.0", b"1.x")])
def test_a_runtime_of_another_abi(library: Library, newest: int, version: bytes, said: bytes) -> None:
    messages: list[bytes] = []

    def create_status(code: int, message: bytes) -> int:
        messages.append(message)
        return 1

    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(create_status)
    table = (ctypes.c_void_p * 1)(ctypes.cast(function, ctypes.c_void_p))
    name = ctypes.create_string_buffer(version)
    base = ApiBase(
        ApiBase._fields_[0][1](lambda asked: ctypes.addressof(table) if asked <= newest else None),
        ApiBase._fields_[1][1](lambda: ctypes.addressof(name)),
    )
    register = ctypes.CDLL(str(library.path)).RegisterCustomOps
    register.restype = ctypes.c_void_p
    assert register(None, ctypes.byref(base)) == 1
    assert said in messages[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("head_dim", [24, 32])
def test_a_source_is_stored_in_blocks(library: Library, head_dim: int, dtype: type[np.floating]) -> None:
    layers, heads, tokens = 2, 3, 21
    width = heads * head_dim
    cross = np.random.default_rng(0).standard_normal((tokens, layers * 2 * width)).astype(np.float32)
    tensors = np.zeros((layers * 2, 4, heads, 32, head_dim), dtype)
    library.store_source(cross, Buffers([tensors]), 2)
    parts = cross.reshape(tokens, layers * 2, heads, head_dim).transpose(1, 2, 0, 3).astype(dtype)
    expected = np.zeros_like(tensors)
    expected[:, 2, :, :tokens] = parts
    for layout, first in ((to_blocks, 0), (by_position, 1)):
        expected[first::2] = np.stack([layout(tensor) for tensor in expected[first::2]])
    np.testing.assert_array_equal(tensors, expected)


def test_a_source_that_does_not_fit(library: Library) -> None:
    tensors = np.zeros((2, 4, 1, 16, 8), np.float32)
    cases: list[tuple[Array, int, str]] = [
        (np.zeros((17, 16), np.float32), 0, "17 tokens do not fit into a capacity of 16"),
        (np.zeros((3, 16), np.float32), 4, "slot 4 of 4"),
        (np.zeros((3, 24), np.float32), 0, "24 numbers of a token, and the cache 16"),
        (np.zeros((3, 16)), 0, "must be fp32 rows, and is float64"),
    ]
    for cross, slot, said in cases:
        with pytest.raises(ValueError, match=said):
            library.store_source(cross, Buffers([tensors]), slot)


def test_two_threads_in_one_session(library: Library) -> None:
    layer, linear = OutputLayer("fp32"), Layer(200, 96)
    best, product = layer.node(library), linear.node(library, scale=0.0, zero_point=128)
    given = [hidden(count, seed) for seed, count in enumerate((5, 33, 64, 2))]
    alone = [(*best(x=x, ranks=ranks(4)), *product(x=x)) for x in given]
    wrong: list[int] = []

    def run(i: int) -> None:
        for _ in range(10):
            together = (*best(x=given[i], ranks=ranks(4)), *product(x=given[i]))
            wrong.extend(i for a, b in zip(together, alone[i], strict=True) if not np.array_equal(a, b))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


SCRIPT = """
import sys
import numpy as np
from kernels.library import open_library
from tests.kernels.test_best_tokens import OutputLayer, hidden, ranks
from tests.kernels.test_quant_linear import Layer, rows
library = open_library()
library.use(sys.argv[1])
ids, log_probs = OutputLayer("fp32").node(library)(x=hidden(20), ranks=ranks(8))
layer = Layer(96, 256)
u8 = [("x", np.float32), ("weight", np.int8), ("scales", np.float32), ("bias", np.float32)]
plain = layer.node(library, scale=0.02, zero_point=128)(x=rows(9, 256))[0]
gelu = layer.node(library, scale=0.0, zero_point=128, activation="gelu")(x=rows(9, 256))[0]
np.savez(sys.argv[2], ids=ids, log_probs=log_probs, plain=plain, gelu=gelu)
"""


def test_other_instructions_give_the_same(library: Library, tmp_path: Path) -> None:
    if library.isa == "portable":
        pytest.skip("this processor has nothing better than portable")
    for isa in ("portable", library.isa):
        subprocess.run([sys.executable, "-c", SCRIPT, isa, str(tmp_path / f"{isa}.npz")], cwd=ROOT, check=True)
    portable, here = (np.load(tmp_path / f"{isa}.npz") for isa in ("portable", library.isa))
    np.testing.assert_array_equal(portable["ids"], here["ids"])
    for name in ("log_probs", "plain", "gelu"):
        np.testing.assert_allclose(portable[name], here[name], rtol=2e-6, atol=2e-5)


def test_instructions_that_are_not_there(library: Library) -> None:
    with pytest.raises(LibraryError, match=r"cannot run sse9 on this processor; it runs"):
        library.use("sse9")


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm was not found")
def test_no_instruction_set_lends_functions_to_another(library: Library) -> None:
    """A template of std:: in two files is one function in the library: of the file that the linker saw first."""
    for table in (ROOT / "kernels" / "build").glob("table-*.o"):
        listed = subprocess.run(["nm", "-C", "--defined-only", str(table)], capture_output=True, text=True, check=True)
        isa = table.stem.removeprefix("table-")
        lent = [line for line in listed.stdout.splitlines() if line[17] in "WVTDB" and f"dragoman::{isa}::" not in line]
        assert lent == [], platform.machine()
