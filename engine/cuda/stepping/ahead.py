"""The step after a step, fed what the device itself makes of that, before the host has seen it.

Greedy search goes on with the best token of every row, beam search with the best extensions of each sentence's
hypotheses: `Placement.going_on` says which of it a device can do.
"""

from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from engine.cuda.lanes.lane import Lane
from engine.cuda.placing.placement import Placement
from engine.cuda.runtime import DeviceRuntime
from engine.cuda.stepping.buckets import Bucket
from engine.devices.session import run_options


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step of one size in one lane."""

    lane: Lane
    bucket: Bucket


class Ahead:
    """The way from each lane to the other."""

    def __init__(
        self, runtime: DeviceRuntime, placement: Placement, pairs: list[tuple[Step, Step]], library: Path | None
    ) -> None:
        """`pairs`: steps of the same sizes in both lanes. `library`: of our own operators."""
        self._runtime, self._placement = runtime, placement
        self._session, self._options = runtime.open_session(placement.going_on, library=library), run_options()
        both = [*pairs, *((other, one) for one, other in pairs)]
        self._ways = {step: (self._way(step, after.lane), after) for step, after in both}

    def warm_up(self) -> None:
        """Goes every way once, the largest first, from a step that was made to one that is."""
        for step, (_, after) in reversed(self._ways.items()):
            step.bucket.run()
            self.go_on(step)
            after.bucket.run()

    def go_on(self, step: Step) -> Step | None:
        """Enqueues the making of the next step's input. Returns that step, if it is of a size with two lanes."""
        if step not in self._ways:
            return None
        way, after = self._ways[step]
        self._session.run_with_iobinding(way, self._options)
        return after

    def _way(self, step: Step, lane: Lane) -> ort.IOBinding:
        inputs, outputs = self._placement.way(step.lane, lane, step.bucket.rows, step.bucket.k)
        return self._runtime.binding(self._session, inputs, outputs)
