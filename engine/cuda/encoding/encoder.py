"""The standard encoder graph on a device. What it gives stays there."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from engine.cuda.encoding.encoded import CudaSource, check_lengths
from engine.cuda.encoding.padded_batch import PaddedBatch
from engine.cuda.output import CudaOutput
from engine.cuda.runtime import NUMBER_TYPES, Block, DeviceRuntime, Tensor
from engine.devices.buffers import Buffer
from engine.devices.session import is_out_of_memory, run_options
from engine.devices.sizing import BATCH_TOKENS
from engine.errors import OutOfMemory
from models.package.declared.elements import INT32, INT64
from models.package.declared.graphs import GraphsSpec
from models.package.declared.tensors import CacheTensor, alike
from models.package.graph_files import Graph

LENGTH_STEP = 16
"""Sources are padded to multiples of this, and run together only with those of the same: so a source's padding, and
with it the order in which its attention sums, never depends on its batch mates, and the arena sees few shapes."""


class CudaEncoder:
    """See `Encoder`."""

    def __init__(
        self,
        runtime: DeviceRuntime,
        graph: Graph,
        spec: GraphsSpec,
        capacity: int,
        output: CudaOutput | None,
    ) -> None:
        """`capacity`: most tokens of a source. `output`: with a shortlist."""
        self._output = output
        self._runtime, self._spec, self._capacity = runtime, spec, capacity
        self._numbers = NUMBER_TYPES[spec.precision.activations]
        self._session = runtime.open_session(graph)
        self._tensors = alike(spec.cache)

    def close(self) -> None:
        """Drops the session."""
        self._session = None

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CudaSource]:
        """See `Encoder`. Sources of like length are encoded together."""
        check_lengths(sources, self._capacity)
        found: dict[int, CudaSource] = {}
        names = named or [()] * len(sources)
        for length, indices in self._alike(sources).items():
            most = max(1, BATCH_TOKENS // length)
            for first in range(0, len(indices), most):
                part = indices[first : first + most]
                encoded = self._encode([sources[index] for index in part], [names[index] for index in part], length)
                found |= zip(part, encoded, strict=True)
        return [found[index] for index in range(len(sources))]

    def _alike(self, sources: Sequence[Sequence[int]]) -> dict[int, list[int]]:
        """Which sources have the same padded length."""
        alike: dict[int, list[int]] = {}
        for index, source in enumerate(sources):
            padded = min(-(-len(source) // LENGTH_STEP) * LENGTH_STEP, self._capacity)
            alike.setdefault(padded, []).append(index)
        return alike

    def _encode(
        self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]], length: int
    ) -> list[CudaSource]:
        """Encodes sources together."""
        try:
            batch = self._run(sources, named, length)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            if is_out_of_memory(error):
                raise OutOfMemory(sum(map(len, sources))) from error
            raise
        return [CudaSource(batch, sentence) for sentence in range(len(sources))]

    def _run(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]], length: int) -> PaddedBatch:
        # Sentences of one token fill up to a power of two: few shapes again.
        sentences = 1 << (len(sources) - 1).bit_length()
        ids = np.full((sentences, length), self._spec.vocabulary.pad_id, np.int64)
        lengths = np.ones(sentences, np.int32)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = source
            lengths[row] = len(source)
        runtime, spec = self._runtime, self._spec
        hidden = runtime.allocate(sentences * length * spec.width * self._numbers.size_bytes)
        buffers, starts, outputs = list[Buffer](), list[Block | None](), dict[str, Tensor]()
        for tensors in self._tensors:
            start = None
            if tensors[0].start is not None:
                layout = _layout(tensors[0], len(tensors), sentences, length)
                buffers.append(runtime.allocate(layout.size_bytes))
                start = replace(layout, address=buffers[-1].address)
                outputs |= _outputs(tensors, start)
            starts.append(start)
        outputs[spec.hidden] = self._numbers.element, (sentences, length, spec.width), hidden.address
        inputs: dict[str, Tensor] = {
            "ids": (INT64, ids.shape, runtime.outbox.send(ids)),
            "lengths": (INT32, lengths.shape, runtime.outbox.send(lengths)),
        }
        self._session.run_with_iobinding(runtime.binding(self._session, inputs, outputs), run_options())
        allowed = None if self._output is None else self._output.send(sources, named)
        given, of_sources = [len(source) for source in sources], (runtime, self._numbers, spec.width, hidden)
        return PaddedBatch(*of_sources, sentences, length, given, starts, buffers, self._output, allowed)


def _layout(tensor: CacheTensor, tensors: int, sentences: int, length: int) -> Block:
    """A block for what so many tensors like this one start with, which lies nowhere yet."""
    places = 1 if tensor.grows is None else length
    slot_bytes = tensor.head_dim * NUMBER_TYPES[tensor.precision].size_bytes
    return Block(0, tensors, sentences, tensor.heads, places, slot_bytes)


def _outputs(tensors: Sequence[CacheTensor], block: Block) -> dict[str, Tensor]:
    """The encoder outputs that go into a block."""
    element, shape = NUMBER_TYPES[tensors[0].precision].element, tensors[0].shape(block.rows, block.places)
    return {
        tensor.start: (element, shape, address)
        for tensor, address in zip(tensors, block.tensor_addresses(), strict=True)
        if tensor.start is not None
    }
