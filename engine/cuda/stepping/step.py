"""A decoder step on a device, and the step after it, which may be made before the host asks for it.

Behind every step the device makes the input of the next one, as the searches will most probably choose it, and the host
is told of that with what the step found. If the host then asks for that very step, nothing is sent, and the step may be
under way or done: it is begun while the host reads the one before. If not, because a row joined or a search chose
otherwise, what was made ahead is forgotten: it has written keys and values only behind the positions that count, and
the tables that it has changed are sent with the host's own step. The state of a recurrence has no positions, so a model
with one makes no step ahead.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.captured import capturing
from engine.cuda.lanes.lane import NO_COSTS, Lane
from engine.cuda.lanes.layout import Layout
from engine.cuda.output import CudaOutput
from engine.cuda.placing.placement import Placement
from engine.cuda.runtime import DeviceRuntime
from engine.cuda.stepping.ahead import Ahead, Step
from engine.cuda.stepping.buckets import StepGraph
from engine.cuda.stepping.guess import Guess
from engine.cuda.stepping.sizes import StepSizes
from engine.cuda.stepping.whole_rows import WholeRows
from engine.decoder import Ask, Found, Outlook, TokenIds
from engine.logits.whole_rows import asks_more
from models.package.declared.graphs import GraphsSpec


@dataclass(frozen=True, slots=True)
class Begun:
    """A step that the host waits for, and what follows it."""

    step: Step
    rows: NDArray[np.intp]
    """Of the step, in which those of the batch are [live]."""
    ask: Ask
    after: Step | None
    """What its output was made the input of."""
    under_way: bool
    """That step was begun."""
    after_that: Step | None
    """If it was, what its output was made the input of."""


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
        library: Path | None,
    ) -> None:
        """`output`: with a shortlist. `library`: of our own operators, if the graph has them."""
        self._transfers, self._cuda_graphs = runtime.transfers, runtime.device.cuda_graphs
        rows, self._places, self._placement = blocks.rows, blocks.target_places, placement
        graph = StepGraph(runtime, session, spec, blocks, placement, output)
        self._lane, other = lanes = Lane.pair(runtime, rows, graph.most_candidates)
        for lane in lanes:  # warming up decodes what lies there
            lane.fill(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(rows, np.int32), placement.slots)
        runtime.transfers.wait()
        self._all = np.arange(rows)
        self._whole_rows = WholeRows(runtime, spec, blocks, placement)
        self._sizes = StepSizes(graph, self._lane, rows, self._whole_rows)
        self._ahead: Ahead | None = None
        # Else nothing is gained by it, or a step that is not wanted after all has spoilt the states.
        if runtime.transfers.asynchronous and blocks.repeatable:
            self._ahead = Ahead(runtime, placement, self._sizes.pairs(other), library)
        self._furthest = 0
        """The largest position of the last step, also of rows in it that have left the batch."""
        self._layout: tuple[Outlook, Layout] | None = None
        """The last one, and what it was made of."""
        self._begun: Begun
        self._guess: Guess | None = None
        """The next step, as the device has it."""
        self._trusts = True
        """The device was right when it last could be: then its steps are begun before they are asked for."""

    def warm_up(self) -> None:
        """Makes steps of every size once, the largest first, so that all memory that they need is taken.

        CUDA graphs are captured thereby. Raises DeviceError where they cannot be.
        """
        with capturing(self._cuda_graphs):
            for step in self._sizes.all():
                step.bucket.run()
            if self._ahead is not None:
                self._ahead.warm_up()
            self._transfers.wait()

    def begin(
        self, token_ids: TokenIds, positions: NDArray[np.int32], source_last: NDArray[np.int32], ask: Ask
    ) -> None:
        """Starts a step of the rows that have a token. `source_last`: of all rows of the cache, live or not."""
        tokens, live, layout = np.asarray(token_ids, np.int64), len(token_ids), self._laid_out(ask, len(token_ids))
        guess, self._guess, rows = self._guess, None, None
        if guess is not None and layout is not None and ask.best <= guess.step.bucket.k:
            rows = guess.rows(tokens, positions, self._placement.slots[:, :live], layout)
            self._trusts = rows is not None
        fitting = self._sizes.fitting(live, ask.best)
        if guess is None or rows is None:
            if ask.outlook is None or layout is None or not self._placement.foresees(ask.outlook, layout):
                layout = None
            step, rows = self._sizes.with_whole_rows(fitting) if asks_more(ask) else fitting, self._all[:live]
            self._placement.send(None if layout is None else ask.outlook)
            costs = NO_COSTS if layout is None or ask.outlook is None else ask.outlook.costs()
            step.lane.fill(tokens, positions, source_last, self._placement.slots, layout, costs)
            self._furthest = int(positions.max())
            after = self._launch(step, self._furthest, layout is not None)
        else:
            step, self._furthest = guess.step, self._furthest + 1
            after = self._begun.after_that if guess.begun else self._launch(step, self._furthest)
        if step.bucket.rows > fitting.bucket.rows:  # many have left
            after = None
        under_way = self._trusts and after is not None
        after_that = self._launch(after, self._furthest + 1) if after is not None and under_way else None
        self._begun = Begun(step, rows, ask, after, under_way, after_that)

    def end(self, source_last: NDArray[np.int32]) -> Found:
        """Waits for the step. The arrays are overwritten by the next. `source_last`: as for `begin`."""
        begun, step, ask = self._begun, self._begun.step, self._begun.ask
        found = step.lane.read(step.bucket.rows, step.bucket.k)
        if begun.after is not None:
            self._guess = Guess(begun.after, step.lane.after, begun.rows, self._lane.fed.first, begun.under_way)
        best = Found(found.token_ids[begun.rows, : ask.best], found.log_probs[begun.rows, : ask.best])
        return self._whole_rows.answer(ask, best, source_last[: len(begun.rows)]) if asks_more(ask) else best

    def take(self, parents: NDArray[np.intp]) -> None:
        """Row i of the batch continues old row parents[i]. Where rows move, what was made ahead is not theirs."""
        if self._guess is not None:
            if self._placement.moves and (parents != self._all[: len(parents)]).any():
                self._guess = None
            else:
                self._guess.take(parents)

    def forget(self) -> None:
        """A row has joined: what was made ahead is without it."""
        self._guess = None

    def _launch(self, step: Step, furthest: int, goes_on: bool = True) -> Step | None:
        """Enqueues a step, and the making of the next one's input, if there is room for its tokens. Returns that."""
        step.bucket.run()
        after = None
        if goes_on and self._ahead is not None and furthest + 1 < self._places:
            after = self._ahead.go_on(step)
        step.lane.fetch(step.bucket.rows, step.bucket.k)
        return after

    def _laid_out(self, ask: Ask, live: int) -> Layout | None:
        """How rows belong to searches, if the device can tell how those go on."""
        outlook = ask.outlook
        if self._ahead is None or outlook is None or asks_more(ask):
            return None
        if self._layout is None or self._layout[0] is not outlook or len(self._layout[1].first) != live:
            self._layout = outlook, Layout.of(outlook, live)
        return self._layout[1]
