"""The encoder for GPUs: sources of any lengths one behind another, and runs of few sizes, each captured once.

    encode   one copy to the device (ids, positions, where sources begin and how long they are: 20 bytes a token)
             -> the graph of a bucket, which writes to a workspace -> copies of what it gave to memory of its own,
             all enqueued

What it gave is copied because a source may wait long before it joins, and its hidden states may be read at any time.
"""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.cuda.captured import captured_options, capturing, open_captured
from engine.cuda.encoding.encoded import CudaSource, check_lengths
from engine.cuda.encoding.packed_batch import PackedBatch
from engine.cuda.encoding.packed_feed import feed, token_buckets
from engine.cuda.encoding.source_keeper import SourceKeeper
from engine.cuda.runtime import NUMBER_TYPES, DeviceRuntime
from engine.devices.session import is_out_of_memory
from engine.devices.sizing import BATCH_TOKENS, FED_BYTES, packed_tokens
from engine.errors import OutOfMemory
from engine.host.positions import runs
from models.package import signature
from models.package.declared.elements import INT32, INT64
from models.package.declared.graphs import GraphsSpec
from models.package.graph_files import Graph


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Runs of so many tokens."""

    tokens: int
    binding: ort.IOBinding
    options: ort.RunOptions


class PackedEncoder:
    """See `Encoder`."""

    def __init__(self, runtime: DeviceRuntime, graph: Graph, spec: GraphsSpec, capacity: int, library: Path) -> None:
        """`capacity`: most tokens of a source. `library`: of our own operators. Raises DeviceError."""
        self._runtime, self._spec, self._capacity = runtime, spec, capacity
        self._numbers = NUMBER_TYPES[spec.precision.activations]
        self._cross_width = sum(it.heads * it.head_dim for it in spec.cache if it.owner == "source")
        self._hidden_bytes = spec.width * self._numbers.size_bytes
        self._cross_bytes = self._cross_width * self._numbers.size_bytes
        most = packed_tokens(capacity)
        sizes = FED_BYTES, self._hidden_bytes, self._cross_bytes
        self._feed, self._hidden, self._cross = (runtime.allocate(most * size_bytes) for size_bytes in sizes)
        self._warm_in: set[int] = set()
        """The threads that captured the runs, which CUDA graphs belong to."""
        self._keeper = SourceKeeper(runtime, library)
        with ExitStack() as opened:
            opened.callback(self._keeper.close)
            self._session, self._captured = open_captured(runtime, graph, library, "encoder runs")
            opened.pop_all()
        self._buckets = [self._bucket(tokens) for tokens in token_buckets(most)]

    def close(self) -> None:
        """Drops the sessions, and what is bound to them."""
        self._buckets.clear()
        self._keeper.close()
        self._session = None

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CudaSource]:
        """See `Encoder`. named: of no use, because no package with a shortlist has such an encoder."""
        check_lengths(sources, self._capacity)
        if threading.get_ident() not in self._warm_in:
            self.warm_up()
        found: list[CudaSource] = []
        for group in runs([len(source) for source in sources], BATCH_TOKENS):
            batch = self._encode(sources[group])
            found += [CudaSource(batch, index) for index in range(len(batch.lengths))]
        return found

    def warm_up(self) -> None:
        """Makes a run of every bucket, the largest first, so that all memory that they need is taken.

        CUDA graphs are captured thereby. Raises DeviceError where they cannot be.
        """
        with capturing(self._captured):
            for bucket in reversed(self._buckets):
                self._run(bucket, [], np.zeros(0, np.int32))
            self._runtime.transfers.wait()
        self._warm_in.add(threading.get_ident())

    def _encode(self, sources: Sequence[Sequence[int]]) -> PackedBatch:
        """In one run."""
        lengths = np.array([len(source) for source in sources], np.int32)
        tokens, runtime = int(lengths.sum()), self._runtime
        bucket = next(bucket for bucket in self._buckets if bucket.tokens >= tokens)
        # As large as the bucket, so that there are few sizes, and the arena does not grow.
        cross_at = bucket.tokens * self._hidden_bytes
        try:
            memory = runtime.allocate(cross_at + bucket.tokens * self._cross_bytes)
            self._run(bucket, sources, lengths)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            if is_out_of_memory(error):
                raise OutOfMemory(tokens) from error
            raise
        runtime.transfers.copy(self._hidden.address, memory.address, tokens * self._hidden_bytes)
        runtime.transfers.copy(self._cross.address, memory.address + cross_at, tokens * self._cross_bytes)
        cross = self._numbers.element, (tokens, self._cross_width), memory.address + cross_at
        given = runtime, self._keeper, self._numbers, self._spec.width, memory, cross
        return PackedBatch(*given, bucket.tokens, (np.cumsum(lengths) - lengths).tolist(), lengths.tolist())

    def _run(self, bucket: _Bucket, sources: Sequence[Sequence[int]], lengths: NDArray[np.int32]) -> None:
        """Enqueues a run. What it gives lies in the workspace until the next."""
        fed = feed(sources, lengths, bucket.tokens, self._spec.vocabulary.pad_id)
        self._runtime.outbox.send_to(fed, self._feed.address)
        self._session.run_with_iobinding(bucket.binding, bucket.options)

    def _bucket(self, tokens: int) -> _Bucket:
        element, feed_at = self._numbers.element, self._feed.address
        types = (INT64, 8), (INT32, 4), (INT32, 4), (INT32, 4)
        inputs = {}
        for name, (type_, size_bytes) in zip(signature.DEVICE_ENCODER_INPUTS, types, strict=True):
            inputs[name] = type_, (tokens,), feed_at
            feed_at += tokens * size_bytes
        outputs = {
            signature.HIDDEN: (element, (tokens, self._spec.width), self._hidden.address),
            signature.CROSS: (element, (tokens, self._cross_width), self._cross.address),
        }
        binding = self._runtime.binding(self._session, inputs, outputs)
        return _Bucket(tokens, binding, captured_options(self._captured))
