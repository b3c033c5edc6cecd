"""The running batch of the native graphs. Leaving moves nothing, and reordering copies only what has a second child."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.decoder import Ask, Followed, Found, Goes, Parents, TokenIds
from engine.host.cache_memory import STEP
from engine.logits.graph import LogitsGraph
from engine.logits.whole_rows import answer, asks_logits, asks_more, attend
from engine.native.allowed import AllowedTokens
from engine.native.encoder import NativeSource
from engine.native.named import NamedTokens
from engine.native.rows import Rows
from engine.native.slot_memory import SlotMemory, by_head
from engine.native.step import BoundStep, NativeStep
from kernels.library import Buffers, Library
from kernels.steps import SoFar
from models.package.declared.graphs import GraphsSpec, NativeGraphs
from models.package.declared.tensors import alike


class SlotCache:
    """Rows 0..live-1 of a running batch."""

    def __init__(
        self,
        library: Library,
        session: ort.InferenceSession,
        spec: GraphsSpec,
        native: NativeGraphs,
        rows: int,
        source_capacity: int,
        target_capacity: int,
        logits: LogitsGraph,
        named: NamedTokens,
        shortlisted: bool,
    ) -> None:
        """Has room for so many rows, each of so many source and target tokens."""
        self._library, self._spec, self._logits, self._named = library, spec, logits, named
        self._target_capacity, self._source_capacity = target_capacity, source_capacity
        longest = {"target": _whole(target_capacity), "source": _whole(source_capacity), None: 1}
        self._memories = [SlotMemory(tensors, rows, longest[tensors[0].grows]) for tensors in alike(native.cache)]
        self._decoded, self._sources = (
            [memory for memory in self._memories if memory.owner == owner] for owner in ("hypothesis", "source")
        )
        self._rows = Rows(rows, library)
        self._allowed = AllowedTokens(rows) if shortlisted else None
        self._step = NativeStep(library, session, spec, self._rows, self._memories, self._allowed)
        self._buffers: Buffers | None = None
        """The memory of what rows have decoded. None: it lies elsewhere than before."""
        self._source_buffers: Buffers | None = None
        """The same of sources."""
        self._ask, self._more, self._names = Ask(), False, False
        self._fitting = range(0)
        """The numbers of positions for which what grows with the target has room as it is."""

    @property
    def live(self) -> int:
        """How many rows are in use."""
        return self._rows.live

    def join(self, source: NativeSource) -> int:
        """Starts a row for a source, at position 0."""
        longest = max(source.length, self._rows.longest_source)
        if longest > self._source_capacity:
            raise ValueError(f"a source has {longest} tokens; the cache was opened for {self._source_capacity}")
        self._fit(self._sources, longest)
        row = self._rows.join(source.length)
        if self._source_buffers is None:
            self._source_buffers = _buffers(self._sources)
        if self._sources:
            self._library.store_source(source.cross, self._source_buffers, int(self._rows.source_slots[row]))
        for memory in self._decoded:
            if memory.grows is None:
                memory.array[:, self._rows.slots[row]] = 0
        if self._allowed is not None and source.allowed is not None and self._allowed.put(row, source.allowed):
            self._step.forget()
        return row

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        """Starts a step that feeds one token to each live row and finds what is asked of each."""
        if ask is not self._ask:
            if ask != self._ask:
                self._logits.check_offered(ask)
                # Of a graph that cannot be used, not every step is to find that out.
                self._names, self._more = asks_logits(ask) and self._named.offered(), asks_more(ask)
            self._ask = ask  # also an equal one: it comes again at the next step
        total = self._rows.furthest + 1
        if total not in self._fitting:
            if total > self._target_capacity:  # also where nothing grows with the target
                raise ValueError(f"a row needs {total} positions; the cache was opened for {self._target_capacity}")
            self._fit(self._decoded, total)
            self._fitting = self._positions_that_fit()
        self._rows.ids[: self._rows.live] = token_ids

    def end_step(self) -> Found:
        """Computes the step that was begun: the processor that would compute it meanwhile is the caller's own."""
        step = self._step.run(self._ask.best, self._more)
        self._rows.advance()
        if self._allowed is not None:
            self._allowed.fill(step.best.token_ids)
        return self._answer(step) if self._more else step.best

    def follow(self, search: Goes, most: int, arrivals: SoFar) -> Followed | None:
        """Makes the step that was begun, and those that follow it. See `engine.decoder.FollowingCache`."""
        step = None if self._more else self._step.known(self._ask.best)
        if step is None or step.following is None or (self._allowed is not None and self._ask.best > 1):
            return None
        step.following.look_for(arrivals, self._buffers_of_rows())
        self._rows.hold()
        made = search.follow(step.following, step.best, min(most, self._fitting.stop - 1 - self._rows.furthest))
        self._rows.furthest += made
        return Followed(step.best, made, *step.following.copied)

    def take(self, parents: Parents) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes copied."""
        if self._allowed is not None:
            self._allowed.take(parents)
        return self._rows.take(parents, self._buffers_of_rows()).copied_bytes

    def _buffers_of_rows(self) -> Buffers:
        if self._buffers is None:
            self._buffers = _buffers(self._decoded)
        return self._buffers

    def _fit(self, memories: Sequence[SlotMemory], needed: int) -> None:
        """Makes room for so many positions where the memory grows with them."""
        for memory in memories:
            if memory.grows and not memory.fits(needed):
                rows, self._buffers, self._source_buffers = self._rows, None, None
                memory.fit(needed, rows.live_slots if memory.owner == "hypothesis" else rows.live_source_slots)
                self._step.forget()

    def _positions_that_fit(self) -> range:
        ranges = [memory.fitting for memory in self._decoded if memory.grows]
        stop = min([self._target_capacity + 1, *(one.stop for one in ranges)])
        return range(max((one.start for one in ranges), default=0), stop)

    def _answer(self, step: BoundStep) -> Found:
        logits = attention = named = None
        if asks_logits(self._ask) and step.hidden is not None:
            logits = partial(self._whole_rows, step.hidden)
            named = partial(self._named_logits, step.hidden) if self._names else None
        if self._ask.attention and step.query is not None:
            attention = self._attend(step.query)
        return answer(self._ask, step.best, logits, attention, named, step.normaliser)

    def _whole_rows(self, hidden: NDArray[np.float32], rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Logits of some rows of what the output layer takes."""
        logits = self._logits.run(hidden[rows])
        return logits if self._allowed is None else self._allowed.mask(logits, rows)

    def _named_logits(
        self, hidden: NDArray[np.float32], rows: NDArray[np.intp], token_ids: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Of tokens of some rows [some, named]."""
        logits = self._named.run(hidden[rows], token_ids)
        return logits if self._allowed is None else self._allowed.mask_named(logits, rows, token_ids)

    def _attend(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Where the rows of these queries look in their sources [rows, longest source]."""
        cross, rows = self._spec.cross_query, len(query)
        assert cross is not None
        keys = next(
            array
            for memory in self._sources
            for tensor, array in zip(memory.tensors, memory.array, strict=True)
            if tensor.past == cross.keys
        )
        of_rows = by_head(keys[self._rows.source_slots[:rows]].astype(np.float32))
        return attend(query, of_rows, self._rows.source_lengths[:rows] - 1, cross.scale)


def _buffers(memories: Sequence[SlotMemory]) -> Buffers:
    return Buffers([memory.array for memory in memories])


def _whole(capacity: int) -> int:
    """Memory grows in whole steps, which are whole blocks of keys."""
    return -(-capacity // STEP) * STEP
