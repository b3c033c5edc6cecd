"""The step after a step, made before the host has seen what it is to be fed.

The graph engine/cuda/graphs/ahead.onnx makes a step's best tokens the next step's input, in the other lane.
"""

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from engine.cuda.buckets import Bucket, StepGraph, row_buckets
from engine.cuda.graphs import AHEAD
from engine.cuda.lane import Lane
from engine.cuda.runtime import DeviceRuntime
from engine.devices.elements import INT32, INT64
from engine.devices.session import run_options


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
        self._session, self._options = runtime.open_session(AHEAD), run_options()
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
