"""The cache of the standard decoder graph: preallocated for each engine, and bound to its inputs and outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.cpu.allowed import AllowedTokens
from engine.cpu.cache_buffer import CacheBuffer
from engine.cpu.screened import Screened, WholeRows
from engine.cpu.source import CpuSource
from engine.decoder import Ask, Found, Parents, TokenIds
from engine.devices.session import bind
from engine.host.cache_memory import DTYPES
from engine.logits.graph import LogitsGraph
from engine.logits.whole_rows import (
    answer,
    asks_logits,
    asks_more,
    attend,
    attend_by_scores,
    check_offered,
    mark_not_finite,
)
from models.package import signature
from models.package.declared.graphs import GraphsSpec
from models.package.declared.tensors import alike


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A step of so many rows, and what it fills."""

    binding: ort.IOBinding
    best: Found
    logits: NDArray[np.floating] | None
    query: NDArray[np.floating] | None
    """Of the last layer, to the source."""
    screened: Screened | None = None


class CpuCache:
    """The running batch, in buffers that the decoder graph reads and writes in place."""

    def __init__(
        self,
        session: ort.InferenceSession,
        spec: GraphsSpec,
        rows: int,
        source_capacity: int,
        target_capacity: int,
        allowed: AllowedTokens | None = None,
        logits: LogitsGraph | None = None,
        whole: WholeRows | None = None,
    ) -> None:
        """`logits` and `whole` are those of a screened graph."""
        self._session, self._spec, self._allowed = session, spec, allowed
        self._logits, self._whole = logits, whole
        sides = source_capacity, target_capacity
        self._buffers = [CacheBuffer(tensors, rows, tensors[0].places(*sides)) for tensors in alike(spec.cache)]
        self._of_hypotheses = [buffer for buffer in self._buffers if buffer.owner == "hypothesis"]
        self._along_target, self._along_source = (
            [buffer for buffer in self._buffers if buffer.grows == tokens] for tokens in ("target", "source")
        )
        self._continues = spec.vocabulary.continues
        self._capacity = target_capacity + (source_capacity if self._continues else 0)
        """Most positions of a row."""
        self._ids, self._positions = np.zeros(rows, np.int64), np.zeros(rows, np.int32)
        self._source_last = np.zeros(rows, np.int32)
        self._total, self._source_total = np.zeros((), np.int32), np.zeros((), np.int32)
        self._ranks = np.arange(spec.most_candidates)
        self._slots = np.arange(self._capacity) if spec.slots else None
        self._sentences = np.zeros(rows, np.int64)
        """Which sentence's source a row holds, live or not, counted from 1. 0: none."""
        self._joined = 0
        self._live = 0
        self._bindings: dict[tuple[int, int, bool], BoundStep] = {}
        self._begun: tuple[BoundStep, Ask]

    @property
    def live(self) -> int:
        """How many rows are in use."""
        return self._live

    def join(self, source: CpuSource) -> int:
        """Starts a row for a source: at position 0, or at that of the source's last token."""
        row, length = self._live, source.length
        self._fit(self._along_source, max(length, self._longest_source()))
        if self._continues:
            self._fit(self._along_target, max(length, int(self._positions[:row].max(initial=0)) + 1))
        for buffer in self._buffers:
            buffer.start(row, source.encoded)
        if self._allowed is not None and source.allowed is not None and self._allowed.put(row, source.allowed):
            self._forget_memory()
        self._source_last[row] = length - 1
        self._positions[row] = length - 1 if self._continues else 0
        self._joined += 1
        self._sentences[row] = self._joined
        self._live += 1
        return row

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        """Starts a step that feeds one token to each live row and finds what is asked of each."""
        check_offered(ask, self._spec, reads_scores=True)
        live = self._live
        total = int(self._positions[:live].max()) + 1
        if total > self._capacity:  # also where nothing grows with the target
            raise ValueError(f"a row needs {total} positions; the cache was opened for {self._capacity}")
        self._fit(self._along_target, total)
        self._ids[:live] = token_ids
        self._total[...] = total
        self._source_total[...] = self._longest_source()
        self._begun = self._bind(live, min(ask.best, len(self._ranks)), asks_more(ask)), ask
        if self._slots is not None:  # its length is the one shape that changes from step to step
            self._bind_slots(self._begun[0].binding, self._slots[:total])

    def end_step(self) -> Found:
        """Computes the step that was begun: the processor that would compute it meanwhile is the caller's own."""
        step, ask = self._begun
        self._session.run_with_iobinding(step.binding)
        self._positions[: self._live] += 1
        best = step.best
        if self._whole is not None and step.screened is not None:
            self._whole.mend(best, step.screened)
        if self._allowed is not None:
            best = Found(self._allowed.token_ids(best.token_ids), best.log_probs)
        mark_not_finite(best)
        return self._answer(ask, best, step) if asks_more(ask) else best

    def take(self, parents: Parents) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes copied."""
        copied = sum(self._copy(parent, row) for row, parent in enumerate(parents) if row != parent)
        self._live = len(parents)
        return copied

    def states(self) -> dict[str, NDArray[np.float32]]:
        """A copy of what hypotheses keep that does not grow, the states of cells [live, width], by name."""
        buffers = [buffer for buffer in self._of_hypotheses if buffer.grows is None]
        bound = (pair for buffer in buffers for pair in buffer.bound(self._live))
        return {tensor.past: array.astype(np.float32) for tensor, array in bound}

    def _longest_source(self) -> int:
        """Tokens of the longest source in the batch."""
        return int(self._source_last[: self._live].max(initial=-1)) + 1

    def _fit(self, buffers: Sequence[CacheBuffer], needed: int) -> None:
        """Makes room for so many positions."""
        for buffer in buffers:
            if buffer.fit(needed, slice(self._live)):
                self._forget_memory()

    def _forget_memory(self) -> None:
        """A buffer lies elsewhere, and holds what it did of live rows only."""
        self._bindings.clear()
        self._sentences[self._live :] = 0

    def _copy(self, parent: int, row: int) -> int:
        lengths = {"target": int(self._positions[parent]), "source": int(self._source_last[parent]) + 1, None: 1}
        buffers = self._of_hypotheses
        self._positions[row] = self._positions[parent]
        if self._sentences[row] != self._sentences[parent]:  # the beams of a sentence have its source already
            buffers = self._buffers
            if self._allowed is not None:
                self._allowed.copy(parent, row)
            self._source_last[row] = self._source_last[parent]
            self._sentences[row] = self._sentences[parent]
        return sum(buffer.copy(parent, row, lengths[buffer.grows]) for buffer in buffers)

    def _answer(self, ask: Ask, best: Found, step: BoundStep) -> Found:
        logits = attention = named = None
        if asks_logits(ask):
            logits = partial(self._whole_rows, step)
            if step.logits is not None and self._allowed is None:
                named = partial(self._named, step.logits)
        if ask.attention:
            attention = self._attention(step)
        return answer(ask, best, logits, attention, named)

    def _attention(self, step: BoundStep) -> NDArray[np.float32]:
        """Where rows look [rows, longest source]."""
        query, rows = self._spec.cross_query, len(step.best.token_ids)
        if query is None or step.query is None:  # what is bound last has no memory of ours, for its size changes
            scores = step.binding.get_outputs()[-1].numpy()
            return attend_by_scores(scores[:, None], self._source_last[:rows])
        keys = next(
            array for buffer in self._buffers for tensor, array in buffer.bound(rows) if tensor.past == query.keys
        )
        queries, keys = (array.astype(np.float32, copy=False) for array in (step.query, keys))
        return attend(queries, keys, self._source_last[:rows], query.scale)

    @staticmethod
    def _named(
        logits: NDArray[np.floating], rows: NDArray[np.intp], token_ids: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Logits of some tokens of some rows [some, named]."""
        found = logits[rows[:, None], np.maximum(token_ids, 0)]
        return np.where(token_ids < 0, -np.inf, found).astype(np.float32)

    def _whole_rows(self, step: BoundStep, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Logits of some rows."""
        if self._logits is not None and step.screened is not None:
            return self._logits.run(step.screened.hidden[rows])
        assert step.logits is not None
        if self._allowed is not None:
            return self._allowed.spread(step.logits, rows)
        logits: NDArray[np.float32] = step.logits[rows, : self._spec.vocabulary.target_size].astype(np.float32)
        return logits

    def _bind(self, rows: int, k: int, more: bool) -> BoundStep:
        """The binding of the first `rows` rows of every buffer. Made once: binding takes 86 us, running it 4."""
        if (rows, k, more) not in self._bindings:
            self._bindings[rows, k, more] = self._make_binding(rows, k, more)
        return self._bindings[rows, k, more]

    @staticmethod
    def _bind_slots(binding: ort.IOBinding, slots: NDArray[np.int64]) -> None:
        binding.bind_input(signature.SLOTS, "cpu", 0, np.int64, slots.shape, slots.ctypes.data)

    def _make_binding(self, rows: int, k: int, more: bool) -> BoundStep:
        best = Found(np.zeros((rows, k), np.int64), np.zeros((rows, k), np.float32))
        besides = self._besides(rows) if more else {}
        screened = None if self._whole is None else Screened.room(rows, self._spec.width)
        named = {} if screened is None else dict(zip(signature.SCREENED, screened.arrays, strict=True))
        binding = bind(self._session, self._inputs(rows, k), self._outputs(rows, best) | named | besides)
        if more and self._spec.cross_scores is not None:
            binding.bind_output(self._spec.cross_scores, "cpu")
        logits, query = (
            besides.get(output.name) if output is not None else None
            for output in (self._spec.logits, self._spec.cross_query)
        )
        return BoundStep(binding, best, logits, query, screened)

    def _besides(self, rows: int) -> dict[str, NDArray[np.floating]]:
        """Memory for what the graph gives besides the best tokens."""
        logits, query, dtype = self._spec.logits, self._spec.cross_query, DTYPES[self._spec.precision.activations]
        shapes: dict[str, tuple[int, int]] = {}
        if self._logits is not None:
            logits = None  # a graph of its own gives them
        if logits is not None and self._allowed is None:
            shapes[logits.name] = rows, logits.size
        elif logits is not None and self._allowed is not None:
            shapes[logits.name] = rows + 1, self._allowed.bound
        if query is not None:
            shapes[query.name] = rows, self._spec.query_numbers
        return {name: np.zeros(shape, dtype) for name, shape in shapes.items()}

    def _inputs(self, rows: int, k: int) -> dict[str, NDArray[Any]]:
        ids, positions, source_last = (array[:rows] for array in (self._ids, self._positions, self._source_last))
        step: Sequence[NDArray[Any]] = (ids, positions, self._total, source_last, self._source_total, self._ranks[:k])
        return (
            dict(zip(signature.DECODER_INPUTS, step, strict=True))
            | {tensor.past: array for buffer in self._buffers for tensor, array in buffer.bound(rows)}
            | {name: array for buffer in self._buffers for name, array in buffer.bound_last(rows)}
            | ({} if self._allowed is None else self._allowed.inputs(rows))
        )

    def _outputs(self, rows: int, best: Found) -> dict[str, NDArray[Any]]:
        step: Sequence[NDArray[Any]] = (best.token_ids, best.log_probs)
        return dict(zip(signature.DECODER_OUTPUTS, step, strict=True)) | {
            tensor.present: array for buffer in self._buffers for tensor, array in buffer.bound(rows) if tensor.written
        }
