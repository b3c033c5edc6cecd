"""Native graphs run by ONNX Runtime alone, over memory that a test lays out: no engine has a part in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from export.tracing.graphs import NativeModels
from kernels.library import Library
from models.package import signature

BLOCK = 16
"""Positions whose keys lie together, head by head."""
GARBAGE = 9.0
"""What nobody wrote."""
DTYPES = {"fp32": np.float32, "fp16": np.float16}

Array = NDArray[Any]
Numbers = NDArray[np.float32]
Step = tuple[NDArray[np.int64], Numbers]
"""Candidates and log-probabilities [rows, k]."""


@dataclass(frozen=True)
class Encoded:
    """A source."""

    hidden: Numbers
    """[source, width]"""
    cross: Numbers
    """[source, layers * 2 * width]"""


class Slots:
    """Sessions of both graphs, and slots of hypotheses and of sources."""

    def __init__(self, library: Library, folder: Path, graphs: NativeModels, slots: int, capacity: int) -> None:
        """Each slot has room for `capacity` tokens, a multiple of 16."""
        self._spec = graphs.spec
        self._encoder, self._decoder = (
            _session(model, folder / name, library)
            for name, model in (("encoder.onnx", graphs.encoder), ("decoder.onnx", graphs.decoder))
        )
        self.memory: dict[str, Array] = {
            tensor.past: np.full(tensor.shape(slots, capacity), GARBAGE, DTYPES[tensor.precision])
            for tensor in graphs.spec.cache
        }

    def encode(self, sources: Sequence[Sequence[int]]) -> list[Encoded]:
        """All in one run."""
        lengths = np.array([len(source) for source in sources], np.int32)
        ids = np.concatenate([np.array(source, np.int64) for source in sources])
        positions = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
        feeds = dict(zip(signature.NATIVE_ENCODER_INPUTS, (ids, positions, lengths), strict=True))
        hidden, cross = self._encoder.run([signature.HIDDEN, signature.CROSS], feeds)
        ends = np.cumsum(lengths)[:-1]
        return [Encoded(*parts) for parts in zip(np.split(hidden, ends), np.split(cross, ends), strict=True)]

    def start(self, slot: int) -> None:
        """Makes a slot a new hypothesis's: states begin with zeros."""
        for tensor in self._spec.cache:
            if tensor.grows is None:
                self.memory[tensor.past][slot] = 0

    def put_source(self, slot: int, source: Encoded) -> None:
        """Lays out the keys and values of a source."""
        tensors = [tensor for tensor in self._spec.cache if tensor.owner == "source"]
        for index, (tensor, part) in enumerate(zip(tensors, np.split(source.cross, len(tensors), axis=1), strict=True)):
            array = self.memory[tensor.past][slot]  # of the size [heads, capacity, head_dim]
            heads, capacity, head_dim = array.shape
            positions = part.reshape(len(part), heads, head_dim)
            if index % 2:  # values
                array.reshape(capacity, heads, head_dim)[: len(part)] = positions
            else:
                blocks = array.reshape(capacity // BLOCK, heads, head_dim, BLOCK)
                for place, key in enumerate(positions):
                    blocks[place // BLOCK, :, :, place % BLOCK] = key

    def copy(self, source: int, target: int) -> None:
        """Makes a hypothesis's slot hold what another holds."""
        for tensor in self._spec.cache:
            if tensor.owner == "hypothesis":
                self.memory[tensor.past][target] = self.memory[tensor.past][source]

    def step(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
        source_slots: Sequence[int],
        source_lengths: Sequence[int],
        k: int,
        allowed: NDArray[np.int32] | None = None,
    ) -> Step:
        """One token of each row. Returns candidates and log-probabilities [rows, k]."""
        of_rows = (np.array(given, np.int32) for given in (positions, slots, source_slots, source_lengths))
        arrays: list[Array] = [np.array(ids, np.int64), *of_rows]
        inputs: dict[str, Array] = dict(zip(signature.NATIVE_DECODER_INPUTS, [*arrays, np.arange(k)], strict=True))
        if allowed is not None:
            inputs[signature.ALLOWED] = allowed
        candidates, log_probs = np.zeros((len(ids), k), np.int64), np.zeros((len(ids), k), np.float32)
        outputs: dict[str, Array] = dict(zip(signature.DECODER_OUTPUTS, (candidates, log_probs), strict=True))
        outputs |= {tensor.present: self.memory[tensor.past] for tensor in self._spec.cache if tensor.owner != "source"}
        self._run(inputs | self.memory, outputs)
        return candidates, log_probs

    def _run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        binding = self._decoder.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._decoder.run_with_iobinding(binding)


def _session(model: ir.Model, file: Path, library: Library) -> ort.InferenceSession:
    ir.save(model, file)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(str(library.path))
    return ort.InferenceSession(file, options)
