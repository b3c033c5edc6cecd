"""Steps of a decoder, made by the built library: without ONNX Runtime, and several without the interpreter."""

import ctypes
from collections.abc import Callable, Iterable
from typing import NamedTuple
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from kernels.library import Buffers, Library
from kernels.rows import RowTable


class Recording:
    """A run of a graph of our own operators: the same kernels, on the same memory, may be run again.

    All that the graph was bound to must stay where it is, and its session open.
    """

    def __init__(self, library: Library, run: Callable[[], None], outputs: Iterable[NDArray[np.generic]]) -> None:
        """Makes the run, on this thread. outputs: all arrays that are bound to it."""
        self.library = library
        self.address = library.record([array.ctypes.data for array in outputs])
        # Not where the process ends: a worker may be in the middle of it.
        finalize(self, library.forget, self.address).atexit = False
        try:
            run()
        finally:
            self.nodes = library.end_recording(self.address)
            """How many nodes were run. Where a graph has more, they are not ours, and the run cannot be made again."""

    def replay(self) -> None:
        """Makes the run again. Raises ValueError, where the run would have failed."""
        self.library.replay(self.address)


class Arrivals:
    """How many have come that may want to join: steps that are made without the interpreter end for them."""

    def __init__(self) -> None:
        self._count = ctypes.c_int64()
        self.address = ctypes.addressof(self._count)

    def note(self) -> None:
        """One more. Not by two threads at once."""
        self._count.value += 1

    def so_far(self) -> "SoFar":
        """How many there are now, for steps that are to see whether there are more."""
        return SoFar(self.address, self._count.value)


class SoFar(NamedTuple):
    """Arrivals at some time."""

    address: int
    seen: int


NEVER_MIND = SoFar(0, 0)
"""Whoever comes, there is no room."""


class _Steps(ctypes.Structure):
    """Steps, as src/steps.cpp declares them."""

    _fields_ = (
        ("recording", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("buffer_count", ctypes.c_int64),
        ("token_ids", ctypes.c_void_p),
        ("log_probs", ctypes.c_void_p),
        ("candidates", ctypes.c_int64),
        ("most", ctypes.c_int64),
        ("arrivals", ctypes.c_void_p),
        ("arrived", ctypes.c_int64),
        ("made", ctypes.c_int64),
        ("copied_rows", ctypes.c_int64),
        ("copied_bytes", ctypes.c_int64),
    )


class _BestSteps(ctypes.Structure):
    """Greedy searches, as src/steps.cpp declares them."""

    _fields_ = (
        ("room", ctypes.c_int64),
        ("specials", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("log_probs", ctypes.c_void_p),
        ("special", ctypes.c_void_p),
        ("met", ctypes.c_int64),
    )


class BestSteps:
    """Where greedy searches have what they have found.

    It is told anew of arrays that are others than before: to ask arrays where they are takes longer than a step's rest.
    """

    def __init__(self, tokens: NDArray[np.int64], log_probs: NDArray[np.float64], special: NDArray[np.int64]) -> None:
        """Arrays that stay where they are.

        Args:
            tokens: of each row [steps, rows].
            log_probs: theirs [steps, rows].
            special: tokens that a row's search does not merely append [rows, any].
        """
        room = tokens.shape[1]
        if tokens.shape != log_probs.shape or len(special) != room:
            raise ValueError(f"tokens are {tokens.shape}, their log-probabilities {log_probs.shape}, of {len(special)}")
        if not all(array.flags.c_contiguous for array in (tokens, log_probs, special)):
            raise ValueError("an array does not lie together")
        self.tokens, self.log_probs, self.special = tokens, log_probs, special
        self._at = tokens.ctypes.data, log_probs.ctypes.data
        self._steps = _BestSteps(room, special.shape[1], *self._at, special.ctypes.data)
        self._address = ctypes.addressof(self._steps)

    def are(self, tokens: NDArray[np.int64], special: NDArray[np.int64]) -> bool:
        """Whether it was told of these."""
        return tokens is self.tokens and special is self.special

    def at(self, step: int) -> int:
        """The address of those of which the next one is to be noted there."""
        tokens, log_probs = self._at
        behind = step * self._steps.room * 8
        self._steps.tokens, self._steps.log_probs = tokens + behind, log_probs + behind
        return self._address

    @property
    def met(self) -> bool:
        """Whether a row has got a special token in the last step."""
        return bool(self._steps.met)


class Following:
    """Steps of so many rows that go on by themselves. What they find is in the arrays of the step that was recorded."""

    def __init__(
        self,
        recording: Recording,
        rows: RowTable,
        ids: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        log_probs: NDArray[np.float32],
    ) -> None:
        """Steps like one that was made.

        Args:
            recording: of that step.
            rows: that it was told of.
            ids: what each row is fed [room].
            token_ids: what it found of each row, best first [rows, candidates].
            log_probs: theirs [rows, candidates].
        """
        self._kept = recording, rows, ids, token_ids, log_probs
        self._library = recording.library
        arrays = token_ids.ctypes.data, log_probs.ctypes.data
        self._steps = _Steps(recording.address, rows.address, ids.ctypes.data, None, 0, *arrays, token_ids.shape[1])
        self._address = ctypes.addressof(self._steps)

    def look_for(self, arrivals: SoFar, buffers: Buffers) -> None:
        """What the next steps have to know.

        Args:
            arrivals: no step is begun when there are more.
            buffers: what rows have decoded, for those that are copied.
        """
        steps = self._steps
        steps.buffers, steps.buffer_count = buffers.address, len(buffers)
        steps.arrivals, steps.arrived = arrivals

    def best(self, searches: int, most: int) -> int:
        """Makes up to `most` steps of greedy searches, see `BestSteps.at`. Returns how many.

        Raises ValueError where a step fails.
        """
        self._steps.most = most
        self._library.follow_best(self._address, searches)
        return int(self._steps.made)

    def beams(self, searches: int, most: int) -> int:
        """The same of beam searches, see `kernels.beams`."""
        self._steps.most = most
        self._library.follow_beams(self._address, searches)
        return int(self._steps.made)

    @property
    def copied(self) -> tuple[int, int]:
        """Rows that were copied between those steps, and bytes."""
        return self._steps.copied_rows, self._steps.copied_bytes
