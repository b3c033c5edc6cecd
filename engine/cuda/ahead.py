"""The step after a step, made before the host has seen what it is to be fed.

A graph of three nodes makes a step's best tokens the next step's input, in the other lane:

    candidates     int64 [candidates]   those of all rows, row after row
    best           int64 [rows]         where each row's best one stands
    positions      int32 [rows]         one int32 [1], the number 1
    source_last    int32 [rows]
    next_ids, next_positions, next_source_last       the input of the step after
"""

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from engine.cuda.buckets import Bucket, StepGraph, row_buckets
from engine.cuda.graphs.graph_file import INT32, INT64, Value, graph_file
from engine.cuda.lane import Lane
from engine.cuda.runtime import DeviceRuntime
from engine.devices.session import run_options

INPUTS: dict[str, Value] = {
    "candidates": (INT64, ("candidates",)),
    "best": (INT64, ("rows",)),
    "positions": (INT32, ("rows",)),
    "one": (INT32, (1,)),
    "source_last": (INT32, ("rows",)),
}
OUTPUTS: dict[str, Value] = {
    "next_ids": (INT64, ("rows",)),
    "next_positions": (INT32, ("rows",)),
    "next_source_last": (INT32, ("rows",)),
}
NODES = (
    ("Gather", ("candidates", "best"), "next_ids"),
    ("Add", ("positions", "one"), "next_positions"),
    ("Identity", ("source_last",), "next_source_last"),
)


def ahead_graph() -> bytes:
    """The graph as an ONNX file."""
    return graph_file("ahead", NODES, INPUTS, OUTPUTS)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step that was begun."""

    lane: Lane
    bucket: Bucket


class Ahead:
    """A second lane, and the way from each lane to the other."""

    def __init__(self, runtime: DeviceRuntime, graph: StepGraph, main: dict[int, Step], rows: int, k: int) -> None:
        """`main`: by their rows, the steps of the first lane that find `k` candidates of each row."""
        self._runtime, self._k = runtime, k
        self._session, self._options = runtime.open_session(ahead_graph()), run_options()
        self._one = runtime.constant([1])
        lane = Lane(runtime, rows, k)
        spare = {n: Step(lane, graph.bucket(lane, n, k)) for n in row_buckets(rows)}
        self._ways = {
            source[n]: (self._way(source[n], target[n].lane), target[n])
            for source, target in ((main, spare), (spare, main))
            for n in row_buckets(rows)
        }

    def warm_up(self) -> None:
        """Goes every way once, the largest first, each from a step that was made."""
        for step, (way, after) in reversed(self._ways.items()):
            step.bucket.run()
            self._go(way, after)

    def begin(self, step: Step) -> Step | None:
        """Begins the step after, if it is of the size for which there are two lanes."""
        if step.bucket.k != self._k:
            return None
        way, after = self._ways[step]
        self._go(way, after)
        after.lane.fetch(after.bucket.rows, after.bucket.k)
        return after

    def _go(self, way: ort.IOBinding, step: Step) -> None:
        self._session.run_with_iobinding(way, self._options)
        step.bucket.run()

    def _way(self, step: Step, lane: Lane) -> ort.IOBinding:
        rows, k, source = step.bucket.rows, step.bucket.k, step.lane
        best = self._runtime.constant(np.arange(rows) * k)
        inputs = {
            "candidates": (INT64, (rows * k,), source.candidates),
            "best": (INT64, (rows,), best),
            "positions": (INT32, (rows,), source.positions),
            "one": (INT32, (1,), self._one),  # the lower half of 64 bits
            "source_last": (INT32, (rows,), source.source_last),
        }
        outputs = {
            "next_ids": (INT64, (rows,), lane.ids),
            "next_positions": (INT32, (rows,), lane.positions),
            "next_source_last": (INT32, (rows,), lane.source_last),
        }
        return self._runtime.binding(self._session, inputs, outputs)
