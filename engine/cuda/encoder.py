"""The encoder on a device. What it gives stays there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.cuda.output import CudaOutput
from engine.cuda.runtime import Block, DeviceRuntime, Precision, Tensor
from engine.devices.buffers import Buffer
from engine.devices.elements import INT32, INT64
from engine.devices.session import is_out_of_memory, run_options
from engine.devices.sizing import BATCH_TOKENS
from engine.errors import OutOfMemory
from models.config import ModelConfig
from models.package import signature
from models.package.signature import Kind

LENGTH_STEP = 16
"""Sources are padded to multiples of this, and run together only with those of the same: so a source's padding, and
with it the order in which its attention sums, never depends on its batch mates, and the arena sees few shapes."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The outputs of one encoder run, on the device."""

    runtime: DeviceRuntime
    precision: Precision
    width: int
    hidden: Buffer
    """[sentences, source, width]"""
    cross: Block
    """Cross-attention keys and values of every decoder layer [tensors, sentences, heads, source, head_dim]."""
    cross_buffer: Buffer
    sources: int
    """Sentences that are not there to fill up the batch."""
    allowed: tuple[Block, Buffer] | None
    """With a shortlist, what the sources are allowed."""


@dataclass(frozen=True, slots=True)
class CudaSource:
    """One source of a batch."""

    batch: EncodedBatch
    sentence: int
    """Which of the batch."""
    length: int
    """Its tokens."""

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: its own, and its share of those that fill up the batch."""
        cross = self.batch.cross
        return cross.rows * cross.places / self.batch.sources

    def mean(self) -> NDArray[np.float32]:
        """Mean of the last hidden states over the source tokens [width]. Waits for the device."""
        batch = self.batch
        token_bytes = batch.width * batch.precision.size_bytes
        first = batch.hidden.address + self.sentence * batch.cross.places * token_bytes
        raw = batch.runtime.read(first, self.length * token_bytes)
        hidden = batch.precision.to_float(raw).reshape(self.length, batch.width)
        mean: NDArray[np.float32] = hidden.mean(axis=0)
        return mean


class CudaEncoder:
    """The encoder graph."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        graph: Path,
        config: ModelConfig,
        precision: Precision,
        capacity: int,
        output: CudaOutput | None,
    ) -> None:
        """`capacity`: most tokens of a source. `output`: with a shortlist."""
        self._output = output
        self._runtime, self._config, self._precision, self._capacity = runtime, config, precision, capacity
        self._session = runtime.open_session(graph)
        self._cross = signature.cache_tensors(config, Kind.CROSS)

    def close(self) -> None:
        """Drops the session."""
        self._session = None

    def encode(self, sources: Sequence[Sequence[int]]) -> list[CudaSource]:
        """Encodes sources, those of like length together.

        Raises ValueError for a source that is too long, OutOfMemory where the device has no room: what was encoded
        until then is given back.
        """
        found: dict[int, CudaSource] = {}
        for length, indices in self._alike(sources).items():
            most = max(1, BATCH_TOKENS // length)
            for first in range(0, len(indices), most):
                part = indices[first : first + most]
                found |= zip(part, self._encode([sources[index] for index in part], length), strict=True)
        return [found[index] for index in range(len(sources))]

    def _alike(self, sources: Sequence[Sequence[int]]) -> dict[int, list[int]]:
        """Which sources have the same padded length."""
        alike: dict[int, list[int]] = {}
        for index, source in enumerate(sources):
            if len(source) > self._capacity:
                raise ValueError(f"a source has {len(source)} tokens; the decoder was opened for {self._capacity}")
            padded = min(-(-len(source) // LENGTH_STEP) * LENGTH_STEP, self._capacity)
            alike.setdefault(padded, []).append(index)
        return alike

    def _encode(self, sources: Sequence[Sequence[int]], length: int) -> list[CudaSource]:
        """Encodes sources together."""
        try:
            batch = self._run(sources, length)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            if is_out_of_memory(error):
                raise OutOfMemory(sum(map(len, sources))) from error
            raise
        return [CudaSource(batch, sentence, len(source)) for sentence, source in enumerate(sources)]

    def _run(self, sources: Sequence[Sequence[int]], length: int) -> EncodedBatch:
        # Sentences of one token fill up to a power of two: few shapes again.
        sentences = 1 << (len(sources) - 1).bit_length()
        ids = np.full((sentences, length), self._config.pad_id, np.int64)
        lengths = np.ones(sentences, np.int32)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = source
            lengths[row] = len(source)
        runtime, config, size = self._runtime, self._config, self._precision.size_bytes
        hidden = runtime.allocate(sentences * length * config.width * size)
        shape = len(self._cross), sentences, config.decoder_heads, length, config.decoder_head_dim * size
        cross_buffer = runtime.allocate(int(np.prod(shape)))
        cross = Block(cross_buffer.address, *shape)
        inputs: dict[str, Tensor] = {
            "ids": (INT64, ids.shape, runtime.outbox.send(ids)),
            "lengths": (INT32, lengths.shape, runtime.outbox.send(lengths)),
        }
        outputs = self._outputs(hidden, cross)
        self._session.run_with_iobinding(runtime.binding(self._session, inputs, outputs), run_options())
        allowed = None if self._output is None else self._output.send(sources)
        return EncodedBatch(runtime, self._precision, config.width, hidden, cross, cross_buffer, len(sources), allowed)

    def _outputs(self, hidden: Buffer, cross: Block) -> dict[str, Tensor]:
        element, config = self._precision.element, self._config
        memory = element, (cross.rows, cross.places, config.width), hidden.address
        shape = cross.rows, cross.heads, cross.places, config.decoder_head_dim
        return {signature.MEMORY: memory} | {
            tensor.past: (element, shape, cross.address + index * cross.tensor_bytes)
            for index, tensor in enumerate(self._cross)
        }
