"""Our operators for devices one by one: a graph of one node, run on a provider over random numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

Arrays = dict[str, NDArray[Any]]

TYPES = {
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float64): TensorProto.DOUBLE,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
}
IR_VERSION, OPSET = 10, 20


@dataclass(frozen=True)
class Case:
    """A call of an operator."""

    operator: str
    inputs: Arrays
    outputs: Mapping[str, int]
    """Their names and ONNX types."""
    in_place: Mapping[str, str] = field(default_factory=dict)
    """Outputs that lie in the memory of inputs."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ports: Sequence[str] = ()
    """All inputs that the operator has, in their order, if some of them are left out."""

    def run(self, library: Path, provider: str) -> Arrays:
        """What it gives: on CUDA as on the CPU, every output as an array of the host. The inputs stay as they are."""
        options = ort.SessionOptions()
        options.register_custom_ops_library(str(library))
        options.log_severity_level = 3
        session = ort.InferenceSession(self._model(), options, providers=[provider], enable_fallback=0)
        kind = "cuda" if provider == "CUDAExecutionProvider" else "cpu"
        given = {name: ort.OrtValue.ortvalue_from_numpy(array.copy(), kind, 0) for name, array in self.inputs.items()}
        binding = session.io_binding()
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            if name in self.in_place:
                binding.bind_ortvalue_output(name, given[self.in_place[name]])
            else:
                binding.bind_output(name, kind)
        session.run_with_iobinding(binding)
        found = zip(self.outputs, binding.get_outputs(), strict=True)
        return {name: value.numpy().copy() for name, value in found if name != "scratch"}

    def _model(self) -> bytes:
        inputs = [name if name in self.inputs else "" for name in self.ports or self.inputs]
        node = helper.make_node(self.operator, inputs, list(self.outputs), domain="dragoman", **self.attributes)
        graph = helper.make_graph(
            [node],
            self.operator,
            [helper.make_tensor_value_info(name, TYPES[a.dtype], a.shape) for name, a in self.inputs.items()],
            [helper.make_tensor_value_info(name, element, None) for name, element in self.outputs.items()],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("dragoman", 1)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString())


@dataclass(frozen=True)
class Sizes:
    """Of an attention."""

    rows: int
    heads: int
    head_dim: int
    places: int


def history_attention(sizes: Sizes, random: np.random.Generator) -> Case:
    """Rows at random positions, whose earlier places lie in random slots. One slot is nobody's."""
    rows, slots = sizes.rows, sizes.rows + 1
    keys, values = (normal(random, slots, sizes.heads, sizes.places, sizes.head_dim) for _ in range(2))
    positions = random.integers(0, sizes.places, rows, np.int32)
    positions[0], positions[-1] = 0, sizes.places - 1
    own = random.permutation(slots).astype(np.int32)[:rows]
    # The new place of a row is in no history: steps write nothing that another row reads.
    history = np.full((slots, sizes.places), np.setdiff1d(np.arange(slots), own)[0], np.int32)
    for slot, position in zip(own, positions, strict=True):
        before = np.arange(position)
        history[slot, :position] = [random.choice(_unwritten(own, positions, place, slots)) for place in before]
    inputs: Arrays = {
        "qkv": normal(random, rows, 3 * sizes.heads * sizes.head_dim),
        "keys": keys,
        "values": values,
        "positions": positions,
        "slots": own,
        "history": history,
    }
    half = TensorProto.FLOAT16
    outputs = {"attended": half, "present_keys": half, "present_values": half}
    return Case("HistoryAttention", inputs, outputs, {"present_keys": "keys", "present_values": "values"})


def _unwritten(own: NDArray[np.int32], positions: NDArray[np.int32], place: int, slots: int) -> NDArray[np.int64]:
    """Slots of which nobody writes this place now."""
    return np.setdiff1d(np.arange(slots), own[positions == place])


def slot_attention(sizes: Sizes, random: np.random.Generator) -> Case:
    """Rows that share some slots, with sources of random lengths."""
    slots = max(1, sizes.rows // 2)
    keys, values = (normal(random, slots, sizes.heads, sizes.places, sizes.head_dim) for _ in range(2))
    inputs: Arrays = {
        "query": normal(random, sizes.rows, sizes.heads * sizes.head_dim),
        "keys": keys,
        "values": values,
        "last": random.integers(0, sizes.places, sizes.rows, np.int32),
        "slots": random.integers(0, slots, sizes.rows, np.int32),
    }
    return Case("SlotAttention", inputs, {"attended": TensorProto.FLOAT16})


def packed_attention(lengths: Sequence[int], heads: int, head_dim: int, random: np.random.Generator) -> Case:
    """Sources of these lengths, one behind another."""
    inputs: Arrays = {
        "qkv": normal(random, sum(lengths), 3 * heads * head_dim),
        "firsts": np.repeat(firsts_of(lengths), lengths),
        "lengths": np.repeat(np.array(lengths, np.int32), lengths),
    }
    return Case("PackedAttention", inputs, {"attended": TensorProto.FLOAT16}, attributes={"heads": heads})


def keep_sources(sizes: Sizes, tensors: int, random: np.random.Generator) -> Case:
    """Sources of random lengths, one behind another, of which all but the first are kept, in slots in disorder."""
    lengths = random.integers(1, sizes.places + 1, sizes.rows + 1, np.int32)
    inputs: Arrays = {
        "cross": normal(random, int(lengths.sum()), tensors * sizes.heads * sizes.head_dim),
        "firsts": firsts_of(lengths.tolist())[1:],
        "lengths": lengths[1:],
        "slots": random.permutation(sizes.rows + 2).astype(np.int32)[: sizes.rows],
        "cache": normal(random, tensors, sizes.rows + 2, sizes.heads, sizes.places, sizes.head_dim),
    }
    return Case("KeepSources", inputs, {"kept": TensorProto.FLOAT16}, {"kept": "cache"})


def firsts_of(lengths: Sequence[int]) -> NDArray[np.int32]:
    """Where each of these sources begins."""
    firsts: NDArray[np.int32] = (np.cumsum(lengths) - lengths).astype(np.int32)
    return firsts


def best_logits(rows: int, width: int, columns: int, k: int, random: np.random.Generator) -> Case:
    """Of logits that spread by about 3."""
    hidden, weight = normal(random, rows, width), normal(random, columns, width, scale=3.0 / width**0.5)
    inputs: Arrays = {
        "hidden": hidden,
        "products": (hidden.astype(np.float32) @ weight.astype(np.float32).T).astype(np.float16),
        "weight": weight,
        "bias": normal(random, columns),
        "ranks": np.arange(k),
    }
    outputs = {
        "ids": TensorProto.INT64,
        "log_probs": TensorProto.FLOAT,
        "logits": TensorProto.FLOAT16,
        "scratch": TensorProto.UINT8,
    }
    return Case("BestLogits", inputs, outputs)


def row_linear(
    rows: int, width: int, outputs: int, random: np.random.Generator, activation: str = "none", without: str = ""
) -> Case:
    """without: the names of inputs that are left out."""
    ports = "x", "weight", "bias", "x_scale", "x_shift", "residual", "residual_scale", "residual_shift"
    inputs: Arrays = {
        "x": normal(random, rows, width) + np.float16(2),
        "weight": normal(random, outputs, width, scale=width**-0.5),
        "bias": normal(random, outputs),
        "x_scale": normal(random, width),
        "x_shift": normal(random, width),
        "residual": normal(random, rows, outputs, scale=4.0),
        "residual_scale": normal(random, outputs),
        "residual_shift": normal(random, outputs),
    }
    given = {name: array for name, array in inputs.items() if name not in without.split()}
    attributes = {"activation": activation, "epsilon": 1e-5}
    return Case("RowLinear", given, {"y": TensorProto.FLOAT16}, attributes=attributes, ports=ports)


def embed_tokens(rows: int, width: int, tokens: int, scale: float, random: np.random.Generator) -> Case:
    """At random positions."""
    inputs: Arrays = {
        "ids": random.integers(0, tokens, rows),
        "positions": random.integers(0, 50, rows, np.int32),
        "tokens": normal(random, tokens, width),
        "places": normal(random, 50, width),
    }
    return Case("EmbedTokens", inputs, {"embedded": TensorProto.FLOAT16}, attributes={"scale": scale})


def normal(random: np.random.Generator, *shape: int, scale: float = 1.0) -> NDArray[np.float16]:
    """Random numbers."""
    return (random.standard_normal(shape, np.float32) * scale).astype(np.float16)


def difference(found: Arrays, expected: Arrays, names: Sequence[str]) -> float:
    """The largest of any number of these outputs; NaN where one is not a number in one of them alone."""
    return max(float(np.abs(found[name].astype(np.float64) - expected[name]).max()) for name in names)
