"""A decoder step on a device, and the step after it, which may be made before the host asks for it.

Greedy search feeds every row the best token of the step before. So once a search has done that, the next step is begun
ahead: the device goes on with its own best tokens while the host reads the last ones. If the host then asks for that
very step, it is under way or done. If not, because a row joined, was moved or took another token, what was made ahead
is forgotten: it has written keys and values only behind the positions that count. The state of a recurrence has no
positions, so a model with one makes no step ahead.
"""

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.cuda.ahead import Ahead, Step
from engine.cuda.blocks import CacheBlocks
from engine.cuda.buckets import FEW_CANDIDATES, StepGraph, row_buckets
from engine.cuda.captured import capturing
from engine.cuda.lane import Lane
from engine.cuda.output import CudaOutput
from engine.cuda.placing.placement import Placement
from engine.cuda.runtime import DeviceRuntime
from engine.cuda.whole_rows import WholeRows
from engine.decoder import Ask, Found, TokenIds
from engine.logits.whole_rows import asks_more
from models.package.declared.graphs import GraphsSpec


@dataclass(frozen=True, slots=True)
class Following:
    """What the next step is fed if every row goes on with its best token, and that step, if it was begun ahead."""

    token_ids: NDArray[np.int64]
    positions: NDArray[np.int32]
    step: Step | None

    def is_fed(self, token_ids: TokenIds, positions: NDArray[np.int32]) -> bool:
        """Whether the next step is fed that indeed. Rows at the end may have left."""
        live = len(token_ids)
        return (
            live <= len(self.token_ids)
            and np.array_equal(self.positions[:live], positions)
            and np.array_equal(self.token_ids[:live], token_ids)
        )


class CudaStep:
    """Steps over rows of a cache."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        session: ort.InferenceSession,
        spec: GraphsSpec,
        blocks: CacheBlocks,
        placement: Placement,
        output: CudaOutput | None,
    ) -> None:
        """`output`: with a shortlist."""
        self._transfers, self._cuda_graphs = runtime.transfers, runtime.device.cuda_graphs
        rows, self._places, self._placement = blocks.rows, blocks.target_places, placement
        self._graph = graph = StepGraph(runtime, session, spec, blocks, placement, output)
        self._most = graph.most_candidates
        few = min(FEW_CANDIDATES, self._most)
        self._lane = Lane(runtime, rows, self._most)
        self._steps = {
            (n, k): Step(self._lane, graph.bucket(self._lane, n, k))
            for n in row_buckets(rows)
            for k in sorted({few, self._most})
        }
        self._ahead: Ahead | None = None
        # Else nothing is gained by it, or a step that is not wanted after all has spoilt the states.
        if runtime.transfers.asynchronous and blocks.repeatable:
            self._ahead = Ahead(runtime, graph, {n: self._steps[n, few] for n in row_buckets(rows)}, rows, few)
        self._whole_rows = WholeRows(runtime, spec, blocks, placement)
        self._steps_with_whole_rows: dict[Step, Step] = {}
        self._furthest = 0
        """The largest position that a step was begun with: also of rows that have left since, which steps made ahead go
        on with."""
        self._begun: tuple[Step, NDArray[np.int32], Ask]
        """A step, the positions of its rows, and what is asked of each."""
        self._next: Step | None = None
        """The step after it, if that was begun ahead."""
        self._following: Following | None = None

    def warm_up(self) -> None:
        """Makes steps of every size once, the largest first, so that all memory that they need is taken.

        CUDA graphs are captured thereby. Raises DeviceError where they cannot be.
        """
        with capturing(self._cuda_graphs):
            for step in reversed(self._steps.values()):
                step.bucket.run()
            if self._ahead is not None:
                self._ahead.warm_up()
            self._transfers.wait()

    def begin(
        self, token_ids: TokenIds, positions: NDArray[np.int32], source_last: NDArray[np.int32], ask: Ask
    ) -> None:
        """Starts a step of the rows that have a token. `source_last`: of all rows of the cache, live or not."""
        k, more = ask.best, asks_more(ask)
        following, self._following = self._following, None
        foreseen = following is not None and following.is_fed(token_ids, positions)
        step = following.step if following is not None and foreseen and not more else None
        if step is None or k > step.bucket.k:
            step = self._fitting(len(token_ids), k)
            step = self._with_whole_rows(step) if more else step
            self._placement.send()
            step.lane.fill(token_ids, positions, source_last)
            step.bucket.run()
            step.lane.fetch(step.bucket.rows, step.bucket.k)
            self._furthest = int(positions.max())
        else:
            self._furthest += 1
        self._begun = step, positions.copy(), ask
        self._next = self._begin_next(step) if foreseen and not more else None

    def end(self, source_last: NDArray[np.int32]) -> Found:
        """Waits for the step. The arrays are overwritten by the next. `source_last`: as for `begin`."""
        step, positions, ask = self._begun
        found, live = step.lane.read(step.bucket.rows, step.bucket.k), len(positions)
        self._following = Following(found.token_ids[:live, 0].copy(), positions + 1, self._next)
        best = Found(found.token_ids[:live, : ask.best], found.log_probs[:live, : ask.best])
        return self._whole_rows.answer(ask, best, source_last[:live]) if asks_more(ask) else best

    def forget(self) -> None:
        """Rows have been moved: what was made ahead is not theirs."""
        self._following = None

    def _begin_next(self, step: Step) -> Step | None:
        """Begins the step after, if there is room for its tokens."""
        if self._ahead is None or self._furthest + 1 >= self._places:
            return None
        return self._ahead.begin(step)

    def _with_whole_rows(self, step: Step) -> Step:
        """The same step, which gives whole rows too."""
        if step not in self._steps_with_whole_rows:
            rows, k = step.bucket.rows, step.bucket.k
            bucket = self._graph.bucket(step.lane, rows, k, self._whole_rows.outputs(rows))
            self._steps_with_whole_rows[step] = Step(step.lane, bucket)
        return self._steps_with_whole_rows[step]

    def _fitting(self, live: int, k: int) -> Step:
        """The smallest that has so many rows and candidates, or all candidates that there are."""
        return next(step for (rows, found), step in self._steps.items() if rows >= live and found >= min(k, self._most))
