"""The built library of custom operators, and its functions for the memory of a cache and the steps of a search."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LIBRARY = Path(__file__).parent / "lib" / "libdragoman.so"
OPERATORS = 2
"""Version of the operators that this project's graphs want."""
LAYOUT = 3
"""Version of how caches and the structures of this package lie in memory, which the engine and the library have to
agree on."""


class LibraryError(Exception):
    """There is no library that can be used. Its message says why, and the way out."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What the kernels of this process have counted."""

    rows: int
    """That BestTokens looked at."""
    whole_rows: int
    """Of them, computed whole, because too many tokens might have been among the best."""
    saturated: int
    """Values beyond a static range."""


class _Buffer(ctypes.Structure):
    """A cache, as src/cache.h declares it."""

    _fields_ = (
        ("memory", ctypes.c_void_p),
        ("tensors", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("capacity", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("element", ctypes.c_int64),
        ("tensor_stride", ctypes.c_int64),
        ("slot_stride", ctypes.c_int64),
    )


class Buffers:
    """The memory of caches, as the library is told of it. It is kept as long as this is.

    Each is fp32 or fp16 [tensors, slots, heads, capacity, head_dim]. States are [tensors, slots, 1, 1, width].

    Raises ValueError if one is something else.
    """

    def __init__(self, arrays: Sequence[NDArray[np.generic]]) -> None:
        self._arrays = tuple(arrays)
        self._told = (_Buffer * len(arrays))(*map(_buffer, arrays))
        self.address = ctypes.addressof(self._told)
        self.token_numbers = sum(one.tensors * one.heads * one.head_dim for one in self._told)
        """That are kept of a token."""
        self.in_pairs = all(one.tensors % 2 == 0 for one in self._told)
        """Every other tensor may be the values of the one before it."""

    def __len__(self) -> int:
        return len(self._arrays)


class Library:
    """The functions of an opened library. `path` is for `SessionOptions.register_custom_ops_library`."""

    def __init__(self, path: Path, functions: ctypes.CDLL) -> None:
        self.path = path
        self._functions = functions
        functions.dragoman_isa.restype = ctypes.c_char_p
        functions.dragoman_store_source.restype = ctypes.c_char_p
        functions.dragoman_store_source.argtypes = (ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3)
        functions.dragoman_take_rows.restype = ctypes.c_char_p
        functions.dragoman_take_rows.argtypes = (
            *[ctypes.c_void_p] * 2,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_void_p,
        )
        functions.dragoman_extend_beams.restype = ctypes.c_char_p
        functions.dragoman_extend_beams.argtypes = (ctypes.c_void_p,)
        for follow in (functions.dragoman_follow_best, functions.dragoman_follow_beams):
            follow.restype, follow.argtypes = ctypes.c_char_p, (ctypes.c_void_p, ctypes.c_void_p)
        functions.dragoman_record.restype = ctypes.c_void_p
        functions.dragoman_record.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        functions.dragoman_end_recording.restype = ctypes.c_int64
        functions.dragoman_end_recording.argtypes = (ctypes.c_void_p,)
        functions.dragoman_replay.restype = ctypes.c_char_p
        functions.dragoman_replay.argtypes = (ctypes.c_void_p,)
        functions.dragoman_forget.restype = None
        functions.dragoman_forget.argtypes = (ctypes.c_void_p,)
        functions.dragoman_counters.argtypes = (ctypes.c_void_p,)
        functions.dragoman_counters.restype = None
        functions.dragoman_use.argtypes = (ctypes.c_char_p,)

    @property
    def isa(self) -> str:
        """Which instructions were chosen: kernels/README.md lists them. Empty: it has none that this processor has."""
        return bytes(self._functions.dragoman_isa() or b"").decode()

    @property
    def operators(self) -> int:
        """Version of its operators."""
        return int(self._functions.dragoman_operators())

    @property
    def layout(self) -> int:
        """Version of how caches and structures lie in memory."""
        return int(self._functions.dragoman_layout())

    def use(self, isa: str) -> None:
        """Take other instructions than the best, for tests. Only before the first session is made.

        Raises:
            LibraryError: they were not built, or this processor lacks them.
        """
        if not self._functions.dragoman_use(isa.encode()):
            raise LibraryError(f"{self.path.name} cannot run {isa} on this processor; it runs {self.isa}")

    def store_source(self, cross: NDArray[np.float32], cache: Buffers, slot: int) -> None:
        """Put the cross keys and values of one sentence into a slot, keys in blocks.

        Args:
            cross: [tokens, tensors * heads * head_dim], as the encoder gives them: keys, values of layer 0, of layer 1.
            cache: one, whose tensors are K0, V0, K1, V1, ...
            slot: which.

        Raises:
            ValueError: the sentence does not fit, or there is no such slot.
        """
        if cross.dtype != np.float32 or cross.strides[1] != 4:
            raise ValueError(f"cross must be fp32 rows, and is {cross.dtype} with strides {cross.strides}")
        if len(cache) != 1 or not cache.in_pairs or cross.shape[1] != cache.token_numbers:
            raise ValueError(f"cross has {cross.shape[1]} numbers of a token, and the cache {cache.token_numbers}")
        _check(
            self._functions.dragoman_store_source(
                cache.address, cross.ctypes.data, cross.strides[0] // 4, len(cross), slot
            )
        )

    def take_rows(self, rows: int, parents: int, count: int, buffers: Buffers, done: int) -> None:
        """Make row i continue old row parents[i].

        Args:
            rows: address of the rows, as src/cache.h declares them, see `kernels.rows`.
            parents: address of so many 64-bit numbers.
            count: how many.
            buffers: where rows that are copied have anything.
            done: address of what it took.

        Raises:
            ValueError: there is no such row, or no room for so many.
        """
        _check(self._functions.dragoman_take_rows(rows, parents, count, buffers.address, len(buffers), done))

    def extend_beams(self, step: int) -> None:
        """Find what lives on. step: address of a step as src/beams.h declares it, see `kernels.beams`.

        Raises:
            ValueError: it is none.
        """
        _check(self._functions.dragoman_extend_beams(step))

    def follow_best(self, steps: int, searches: int) -> None:
        """Make steps of greedy searches. Both are addresses, of what src/steps.cpp declares, see `kernels.steps`.

        Raises:
            ValueError: there is no room for so many rows, or a step fails.
        """
        _check(self._functions.dragoman_follow_best(steps, searches))

    def follow_beams(self, steps: int, searches: int) -> None:
        """The same of beam searches, see `kernels.beams`."""
        _check(self._functions.dragoman_follow_beams(steps, searches))

    def record(self, lasting: Sequence[int]) -> int:
        """Begin to record what this thread runs. lasting: addresses of what a graph writes. See `kernels.steps`."""
        return int(self._functions.dragoman_record((ctypes.c_void_p * len(lasting))(*lasting), len(lasting)))

    def end_recording(self, recording: int) -> int:
        """Returns how many nodes were recorded."""
        return int(self._functions.dragoman_end_recording(recording))

    def replay(self, recording: int) -> None:
        """Run them again.

        Raises:
            ValueError: a node refuses what it gets.
        """
        _check(self._functions.dragoman_replay(recording))

    def forget(self, recording: int) -> None:
        """It is not used any more."""
        self._functions.dragoman_forget(recording)

    def counters(self) -> Counters:
        """Of the process, since it started."""
        values = (ctypes.c_int64 * 3)()
        self._functions.dragoman_counters(values)
        return Counters(*values)


@cache
def open_library(path: Path = LIBRARY) -> Library:
    """Open the library that was built. A process has one of each path, and so has the dynamic linker.

    Raises:
        LibraryError: it was not built, was built for other operators or another machine, or is no library.
    """
    if not path.is_file():
        raise LibraryError(f"the kernels are not built ({path} is missing): make kernels")
    try:
        library = Library(path, ctypes.CDLL(str(path)))
        operators, layout = library.operators, library.layout
    except (OSError, AttributeError) as error:
        raise LibraryError(f"{path} is no library of kernels for this machine ({error}): make kernels") from error
    if operators != OPERATORS:
        raise LibraryError(f"{path} has operators of version {operators}, not {OPERATORS}: make kernels")
    if layout != LAYOUT:
        raise LibraryError(f"{path} has a memory of layout {layout}, not {LAYOUT}: make kernels")
    if not library.isa:
        raise LibraryError(f"{path} was built for other processors: make kernels")
    return library


def _buffer(tensors: NDArray[np.generic]) -> _Buffer:
    if tensors.ndim != 5 or tensors.dtype not in (np.float32, np.float16) or not tensors[0, 0].flags.c_contiguous:
        raise ValueError(
            "a cache is fp32 or fp16 [tensors, slots, heads, capacity, head_dim], together within a slot,"
            f" and not {tensors.dtype} {list(tensors.shape)}"
        )
    return _Buffer(tensors.ctypes.data, *tensors.shape, tensors.itemsize, *tensors.strides[:2])


def _check(error: bytes | None) -> None:
    if error is not None:
        raise ValueError(error.decode())
