"""Where a running batch keeps what its rows have.

The standard graph looks for row i at index i of every cache tensor, so what rows have is moved with them
(`engine.cuda.placing.moved_rows`). A device step is told where each row has written what, so nothing moves
(`engine.cuda.placing.slots`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.lanes.feed import Feed
from engine.cuda.lanes.lane import Lane
from engine.cuda.lanes.layout import Layout
from engine.cuda.placing.rows import Rows
from engine.cuda.runtime import DeviceRuntime, Tensor
from engine.decoder import Outlook


class Placement(Protocol):
    """Of the rows of one cache."""

    moves: bool
    """Where rows go on in another order, what they have is moved."""
    going_on: Path
    """The graph that makes a step's output the input of the next one."""
    slots: NDArray[np.int32]
    """Where each row writes, and where its source is [2, rows]. Zeros, if the graph does not ask."""

    @property
    def scalars(self) -> Mapping[str, NDArray[np.int32]]:
        """Inputs of the graph that ONNX Runtime reads on the host []. They never change, nor do their addresses."""
        ...

    def inputs(self, feed: Feed, rows: int) -> dict[str, Tensor]:
        """What the graph is told of where rows are kept, in a step of so many. The addresses never change."""
        ...

    def way(self, source: Lane, target: Lane, rows: int, k: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Inputs and outputs of the graph `going_on`, from one lane to the other."""
        ...

    def foresees(self, outlook: Outlook, layout: Layout) -> bool:
        """Whether that graph can make rows go on like this, and whatever it chooses, harms no row of another search."""
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

    def take(self, parents: NDArray[np.intp]) -> int:
        """Row i is about to continue row parents[i]. Returns the bytes copied."""
        ...

    def send(self, outlook: Outlook | None) -> None:
        """Enqueues what has changed of `inputs`, but for what lies in a lane. From there, rows may go on like this.

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
