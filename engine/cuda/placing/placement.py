"""Where a running batch keeps what its rows have.

The standard graph looks for row i at index i of every cache tensor, so what rows have is moved with them
(`engine.cuda.placing.moved_rows`). A device step is told where each row has written what, so nothing moves
(`engine.cuda.placing.slots`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.placing.rows import Rows
from engine.cuda.runtime import DeviceRuntime, Tensor


class Placement(Protocol):
    """Of the rows of one cache."""

    @property
    def scalars(self) -> Mapping[str, NDArray[np.int32]]:
        """Inputs of the graph that ONNX Runtime reads on the host []. They never change, nor do their addresses."""
        ...

    def inputs(self, rows: int) -> dict[str, Tensor]:
        """What the graph is told of where rows are kept, in a step of so many. The addresses never change."""
        ...

    def cached(self, rows: int) -> int:
        """The first axis of the cache tensors in a step of so many rows."""
        ...

    def sources(self, rows: Sequence[int]) -> list[int]:
        """Where on that axis the sources of rows are kept."""
        ...

    def join(self, row: int) -> None:
        """A row was started."""
        ...

    def take(self, parents: Sequence[int]) -> int:
        """Row i is about to continue row parents[i]. Returns the bytes copied."""
        ...

    def send(self) -> None:
        """Enqueues what has changed of `inputs`.

        A step whose end is waited for must follow before rows join or are taken: it is read until then.
        """
        ...


class Placing(Protocol):
    """A kind of placement."""

    spare_rows: int
    """Of every cache tensor, besides those of the batch."""

    def __call__(self, runtime: DeviceRuntime, blocks: CacheBlocks, rows: Rows) -> Placement:
        """Of a new cache."""
        ...
