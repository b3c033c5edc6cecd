"""Runs of a graph that are made again by the built library, without ONNX Runtime."""

import ctypes
from collections.abc import Callable, Iterable
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from kernels.library import Library


class Recording:
    """A run of a graph of our own operators: the same kernels, on the same memory, may be run again.

    All that the graph was bound to must stay where it is, and its session open.
    """

    def __init__(self, library: Library, run: Callable[[], None], outputs: Iterable[NDArray[np.generic]]) -> None:
        """Makes the run, on this thread. outputs: all arrays that it writes, besides those it keeps for itself."""
        self._library = library
        lasting = [array.ctypes.data for array in outputs]
        self._at = library.record(lasting)
        finalize(self, library.forget, self._at)
        try:
            run()
        finally:
            self.nodes = library.end_recording(self._at)
            """How many nodes were run. Where a graph has more, they are not ours, and the run cannot be made again."""

    def replay(self) -> None:
        """Makes the run again. Raises ValueError, as the run would have failed."""
        self._library.replay(self._at)
