"""export.tracing.trace and export.save: the graphs have the nodes they need and no others, and every weight once."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.devices.session import CPU
from export.tracing.graphs import Graphs, histogram
from export.tracing.modules import DecoderGraph, EncoderGraph
from export.tracing.trace import trace
from export.weights.save import INLINE_BYTES, PAGE_BYTES, save
from models.attention.nodes import LOWEST
from models.best_tokens import block_size, padded_size
from models.config import ModelConfig
from models.package import derived, signature
from models.package.manifest import WEIGHTS
from models.package.signature import DECODER, ENCODER
from models.transformer import Transformer
from tests.models.test_transformer import config, random_model

# The vocabularies are so large that pages which are not full do not count, as in real models.
POST: dict[str, object] = {"scale_embedding": True, "source_vocab_size": 40_000, "target_vocab_size": 40_000}
PRE: dict[str, object] = {
    "norm": "pre",
    "activation": "swish",
    "positions": "learned",
    "share_embeddings": False,
    "source_vocab_size": 99,
    "target_vocab_size": 30_011,
    "tie_output": False,
}
CONFIGS = {
    f"{name}, {encoder_layers}+{decoder_layers} layers": config(
        encoder_layers=encoder_layers, decoder_layers=decoder_layers, **choices
    )
    for name, choices in {"post-norm relu": POST, "pre-norm swish": PRE}.items()
    for encoder_layers, decoder_layers in ((1, 3), (3, 1))
}

ACTIVATION = {"relu": Counter(Relu=1), "swish": Counter(Sigmoid=1, Mul=1)}
FUSED_ACTIVATION = {"relu": "FusedGemm", "swish": "QuickGelu"}
"""What ONNX Runtime makes of it, in the second case of both nodes."""

# One layer, its activation aside. Gemm: packed queries, keys and values, output, feed-forward up and down; Add and
# LayerNormalization: after each sublayer, or before.
ENCODER_LAYER = Counter(
    {"Gemm": 4, "Add": 2, "LayerNormalization": 2, "com.microsoft.MultiHeadAttention": 1, "Split": 1, "Reshape": 2}
)
# And query and output of the attention to the source. Attention wants three dimensions, all else has two.
DECODER_LAYER = Counter(
    {"Gemm": 6, "Add": 3, "LayerNormalization": 3, "com.microsoft.GroupQueryAttention": 2, "Unsqueeze": 2, "Squeeze": 2}
)
# Tokens and positions; the shapes of the memory, its parts, and of the packed projections; cross keys and values.
ENCODER_ENDS = Counter(Gather=1, Slice=1, Add=1, Shape=2, Concat=3, Reshape=3, Gemm=1, Split=1)
CROSS_KEYS_VALUES = Counter(Reshape=2, Transpose=2)
EMBEDDING, HEAD = Counter(Gather=2, Add=1), Counter(Gemm=1)
BEST_BLOCKS = Counter(Reshape=1, ReduceMax=1, TopK=1, Unsqueeze=1, Expand=1, GatherElements=1)
BEST_INSIDE = Counter(Shape=1, Reshape=1, TopK=1)
IDS = Counter(Mul=1, Add=1, Reshape=1, GatherElements=1)
SINUSOIDS = Counter(Mul=1, Sin=1, Cos=1, Concat=1, Cast=1)
"""A table that is not stored. ONNX Runtime computes it when it loads a graph."""
LOG_PROBS = Counter(Softmax=1, Slice=3, Expand=1, GatherElements=1, Log=1, Sub=1, Add=1)


@dataclass(frozen=True)
class Traced:
    """A model and its graphs, in memory and in a folder."""

    model: Transformer
    graphs: Graphs
    folder: Path

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    def optimised(self, name: str, target: Path) -> onnx.ModelProto:
        """A graph as ONNX Runtime runs it."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(target)
        ort.InferenceSession(self.folder / name, options, providers=[CPU.provider])
        return onnx.load(target, load_external_data=False)


@pytest.fixture(scope="session", params=CONFIGS)
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    model = random_model(CONFIGS[request.param])
    graphs = trace(model)
    folder: Path = tmp_path_factory.mktemp("traced")
    save(graphs, folder)
    return Traced(model, graphs, folder)


# Nodes


def test_encoder_has_the_nodes_it_needs_and_no_others(traced: Traced) -> None:
    config = traced.config
    layer = ENCODER_LAYER + ACTIVATION[config.activation]
    expected = times(config.encoder_layers, layer) + times(config.decoder_layers, CROSS_KEYS_VALUES) + ENCODER_ENDS
    assert histogram(traced.graphs.encoder) == expected + choices(config)


def test_decoder_has_the_nodes_it_needs_and_no_others(traced: Traced) -> None:
    config = traced.config
    layers = times(config.decoder_layers, DECODER_LAYER + ACTIVATION[config.activation])
    expected = layers + EMBEDDING + HEAD + BEST_BLOCKS + BEST_INSIDE + IDS + LOG_PROBS
    assert histogram(traced.graphs.decoder) == expected + choices(config)


def test_padding_is_hidden_however_large_scores_are(traced: Traced) -> None:
    """Those of annalog's first layer are up to six millions; ONNX Runtime subtracts 10,000 unless it is told more."""
    nodes = [node for node in traced.graphs.encoder.graph if node.op_type == "MultiHeadAttention"]
    assert nodes
    assert {node.attributes["mask_filter_value"].as_float() for node in nodes} == {LOWEST}


def times(number: int, nodes: Counter[str]) -> Counter[str]:
    return Counter({name: number * count for name, count in nodes.items()})


def choices(config: ModelConfig) -> Counter[str]:
    """What some models have once more."""
    more = Counter(Mul=int(config.scale_embedding), LayerNormalization=int(config.norm == "pre"))
    return more + SINUSOIDS if config.positions == "sinusoidal" else more


def test_optimised_encoder_is_fused_where_that_is_fast(traced: Traced, tmp_path: Path) -> None:
    nodes = Counter(node.op_type for node in traced.optimised(ENCODER, tmp_path / "graph.onnx").graph.node)
    layers = traced.config.encoder_layers
    assert nodes["MultiHeadAttention"] == nodes[FUSED_ACTIVATION[traced.config.activation]] == layers
    assert not {"SkipLayerNormalization", "Cast", "Identity", "Relu", "Sigmoid"} & set(nodes)
    assert nodes.total() <= histogram(traced.graphs.encoder).total()


def test_optimised_decoder_is_fused_where_that_is_fast(traced: Traced, tmp_path: Path) -> None:
    nodes = Counter(node.op_type for node in traced.optimised(DECODER, tmp_path / "graph.onnx").graph.node)
    layers = traced.config.decoder_layers
    assert nodes["GroupQueryAttention"] == 2 * layers
    assert nodes[FUSED_ACTIVATION[traced.config.activation]] == layers
    assert not {"SkipLayerNormalization", "Cast", "Identity", "Transpose", "Relu", "Sigmoid"} & set(nodes)
    assert nodes.total() <= histogram(traced.graphs.decoder).total()


def test_nothing_is_computed_of_weights_alone(traced: Traced) -> None:
    """Which would be the same at every step. The exporter leaves it in the graph if the weights are large."""
    for name in (ENCODER, DECODER):
        graph = onnx.load(traced.folder / name, load_external_data=False).graph
        constant = {"", *(tensor.name for tensor in graph.initializer)}
        alone = [node.op_type for node in graph.node if constant.issuperset(node.input)]
        assert alone == ["Mul"] * (traced.config.positions == "sinusoidal")  # SINUSOIDS begin so


def test_graphs_carry_nothing_of_the_exporter(traced: Traced) -> None:
    for name in (ENCODER, DECODER):
        graph = onnx.load(traced.folder / name, load_external_data=False).graph
        assert {value.name for value in graph.value_info} <= {tensor.name for tensor in graph.initializer}
        assert not any(node.metadata_props or node.doc_string for node in graph.node)
        assert not (graph.metadata_props or graph.doc_string)


# Inputs and outputs


def test_encoder_signature(traced: Traced) -> None:
    config = traced.config
    cached = "float32", ["sentences", config.decoder_heads, "source", config.decoder_head_dim]
    graph = onnx.load(traced.folder / ENCODER, load_external_data=False).graph
    assert described(graph.input) == {"ids": ("int64", ["sentences", "source"]), "lengths": ("int32", ["sentences"])}
    assert described(graph.output) == {
        "hidden": ("float32", ["sentences", "source", config.width]),
        **{name: cached for layer in range(config.decoder_layers) for name in (f"cross_k{layer}", f"cross_v{layer}")},
    }
    assert [output.name for output in graph.output] == derived.encoder_outputs(traced.graphs.spec)


def test_decoder_signature(traced: Traced) -> None:
    config = traced.config
    heads, head_dim = config.decoder_heads, config.decoder_head_dim
    pairs = [f"{part}{layer}" for layer in range(config.decoder_layers) for part in "kv"]
    own = {f"self_{pair}": ("float32", ["rows", heads, "capacity", head_dim]) for pair in pairs}
    cross = {f"cross_{pair}": ("float32", ["rows", heads, "source_capacity", head_dim]) for pair in pairs}
    graph = onnx.load(traced.folder / DECODER, load_external_data=False).graph
    assert described(graph.input) == {
        "ids": ("int64", ["rows"]),
        "positions": ("int32", ["rows"]),
        "total": ("int32", []),
        "source_last": ("int32", ["rows"]),
        "source_total": ("int32", []),
        "ranks": ("int64", ["k"]),
        **own,
        **cross,
        **{f"last_cross_{pair}": ("float32", ["rows", 1, config.width]) for pair in pairs},
    }
    assert described(graph.output) == {
        "candidates": ("int64", ["rows", "k"]),
        "log_probs": ("float32", ["rows", "k"]),
        **{f"present_{name}": axes for name, axes in (own | cross).items()},
        "logits": ("float32", ["rows", padded_size(config.target_vocab_size)]),
        "cross_query": ("float32", ["rows", config.width]),
    }


def test_what_is_declared_is_what_the_graphs_are(traced: Traced) -> None:
    """Names, precisions and axes of every cache tensor, and what else an engine binds."""
    spec = traced.graphs.spec
    encoder, decoder = (onnx.load(traced.folder / name, load_external_data=False).graph for name in (ENCODER, DECODER))
    inputs, outputs, encoded = described(decoder.input), described(decoder.output), described(encoder.output)
    names = {"source": "source_capacity", "target": "capacity"}
    for tensor in spec.cache:
        axes = "float32", [names.get(axis, axis) if isinstance(axis, str) else axis for axis in tensor.axes]
        assert inputs.pop(tensor.past) == outputs.pop(tensor.present) == axes
        if tensor.last is not None:
            assert inputs.pop(tensor.last) == ("float32", ["rows", 1, tensor.heads * tensor.head_dim])
        if tensor.start is not None:
            assert encoded.pop(tensor.start) == ("float32", ["sentences", *tensor.axes[1:]])
    assert list(inputs) == list(signature.DECODER_INPUTS)
    assert spec.logits is not None and outputs.pop(spec.logits.name)[1] == ["rows", spec.logits.size]
    assert spec.cross_query is not None and outputs.pop(spec.cross_query.name)[1] == ["rows", spec.width]
    assert list(outputs) == list(signature.DECODER_OUTPUTS)
    assert list(encoded) == [spec.hidden]
    for told, graph in ((spec.encoder, encoder), (spec.decoder, decoder)):
        assert told is not None
        assert told.weight_bytes == sum(map(size, graph.initializer)) + computed_bytes(traced.config)


def computed_bytes(config: ModelConfig) -> int:
    """Of the table of sinusoids, but for what it is computed of."""
    positions, width = config.max_positions, config.width
    return 4 * positions * width - 8 * (positions + width // 2) if config.positions == "sinusoidal" else 0


def size(tensor: onnx.TensorProto) -> int:
    return prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def test_what_is_known_before_tracing_is_near(traced: Traced) -> None:
    """Enough to refuse a device without room before ten seconds of tracing."""
    expected, spec = traced.graphs.spec, derived.graphs_spec(traced.config, "fp32")
    assert spec.cache == expected.cache
    for ours, theirs in ((spec.encoder, expected.encoder), (spec.decoder, expected.decoder)):
        assert ours is not None and theirs is not None
        assert ours.weight_bytes == pytest.approx(theirs.weight_bytes, rel=0.05)  # but for biases and norms


def described(values: Any) -> dict[str, tuple[str, list[str | int]]]:
    """Names, dtypes and axes of a graph's inputs or outputs."""
    return {
        value.name: (
            str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim],
        )
        for value in values
    }


# Weights


def test_every_weight_is_stored_once(traced: Traced) -> None:
    places = [external(tensor) for name in (ENCODER, DECODER) for tensor in tensors(traced.folder / name)]
    stored = {place for place in places if place is not None}
    assert sum(length for _, length in stored) == distinct_bytes(traced.model)
    assert len({offset for offset, _ in stored}) == len(stored)
    assert all(offset % PAGE_BYTES == 0 for offset, _ in stored)
    ends = [0, *sorted(offset + length for offset, length in stored)]
    assert (traced.folder / WEIGHTS).stat().st_size == ends[-1]
    assert all(offset - end < PAGE_BYTES for (offset, _), end in zip(sorted(stored), ends, strict=False))


def test_weights_take_no_more_than_they_are(traced: Traced) -> None:
    size = (traced.folder / WEIGHTS).stat().st_size
    assert distinct_bytes(traced.model) <= size <= 1.01 * distinct_bytes(traced.model)


def test_weights_are_the_models(traced: Traced) -> None:
    expected = {digest(weight) for weight in large_weights(traced.model)}
    read = [
        onnx.numpy_helper.to_array(tensor, base_dir=str(traced.folder))
        for name in (ENCODER, DECODER)
        for tensor in tensors(traced.folder / name)
        if external(tensor) is not None
    ]
    assert {digest(array) for array in read} == expected


def test_graphs_are_small(traced: Traced) -> None:
    for name in (ENCODER, DECODER):
        small = [tensor for tensor in tensors(traced.folder / name) if external(tensor) is None]
        assert all(prod(tensor.dims) * 8 < INLINE_BYTES * 2 for tensor in small)
        assert (traced.folder / name).stat().st_size < 60_000


def tensors(graph: Path) -> list[onnx.TensorProto]:
    return list(onnx.load(graph, load_external_data=False).graph.initializer)


def external(tensor: onnx.TensorProto) -> tuple[int, int] | None:
    """Offset and length of a tensor's bytes in the file of weights, None if they are in the graph."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    assert entries.get("location", WEIGHTS) == WEIGHTS
    return (int(entries["offset"]), int(entries["length"])) if entries else None


def large_weights(model: Transformer) -> list[NDArray[Any]]:
    """The weights that are not inline. A table of the ids in a block, see `best_tokens`, may be one."""
    tables = {"source_positions", "target_positions"} if model.config.positions == "sinusoidal" else set()
    weights = [weight.detach().numpy() for name, weight in model.state_dict().items() if name not in tables]
    weights.append(np.arange(block_size(model.config.target_vocab_size)))
    return [weight for weight in weights if weight.nbytes >= INLINE_BYTES]


def distinct_bytes(model: Transformer) -> int:
    """Their bytes, equal ones counted once."""
    return sum({digest(weight): weight.nbytes for weight in large_weights(model)}.values())


def digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


# What they compute


@pytest.mark.parametrize(("sentences", "source"), [(1, 1), (1, 9), (4, 1), (5, 11)])
def test_encoder_of_any_size_computes_what_pytorch_does(traced: Traced, sentences: int, source: int) -> None:
    torch.manual_seed(sentences)
    lengths = torch.randint(1, source + 1, (sentences,), dtype=torch.int32)
    lengths[0] = source
    ids = torch.randint(1, 90, (sentences, source))
    with torch.no_grad():
        expected = EncoderGraph(traced.model)(ids, lengths)
    names = derived.encoder_outputs(traced.graphs.spec)
    found = run(traced.folder / ENCODER, names, {"ids": ids, "lengths": lengths})
    # The source axis second, as in the hidden states. What is computed of the padding is nobody's business.
    expected, found = ([array.swapaxes(1, -2) for array in arrays] for arrays in (map(np.asarray, expected), found))
    for ours, theirs in zip(found, expected, strict=True):
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(ours[row, :length], theirs[row, :length], atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("rows", "capacity", "source_capacity", "k"), [(1, 1, 1, 1), (1, 5, 7, 3), (2, 2, 2, 2), (5, 9, 1, 64)]
)
def test_decoder_of_any_size_computes_what_pytorch_does(
    traced: Traced, rows: int, capacity: int, source_capacity: int, k: int
) -> None:
    torch.manual_seed(rows)
    config = traced.config
    own, cross = derived.target_tensors(config, "fp32"), derived.source_tensors(config, "fp32")
    positions, source_last = (torch.arange(rows, dtype=torch.int32) % size for size in (capacity, source_capacity))
    pasts = [
        [torch.randn(rows, config.decoder_heads, length, config.decoder_head_dim) for _ in own]
        for length in (capacity, source_capacity)
    ]
    steps = [
        torch.randint(1, 90, (rows,)),
        positions,
        positions.max() + 1,
        source_last,
        source_last.max() + 1,
        torch.arange(k),
    ]
    last = [torch.randn(rows, 1, config.width) for _ in cross]
    with torch.no_grad():
        ids, log_probs, *present, logits, query = DecoderGraph(traced.model)(*steps, *pasts, last)
    named = zip(own + cross, [*pasts[0], *pasts[1]], strict=True)
    inputs = dict(zip(signature.DECODER_INPUTS, steps, strict=True)) | {tensor.past: past for tensor, past in named}
    inputs |= {str(tensor.last): value for tensor, value in zip(cross, last, strict=True)}
    kept = [tensor.present for tensor in own + cross]
    outputs = [*signature.DECODER_OUTPUTS, *kept, signature.LOGITS, signature.CROSS_QUERY]
    found_ids, found_log_probs, *found_present, found_logits, found_query = run(
        traced.folder / DECODER, outputs, inputs
    )
    np.testing.assert_allclose(found_logits, logits, atol=5e-5, rtol=0)
    np.testing.assert_allclose(found_query, query, atol=2e-5, rtol=0)
    np.testing.assert_array_equal(found_ids, ids)
    np.testing.assert_allclose(found_log_probs, log_probs, atol=2e-5, rtol=0)
    ends = [positions] * len(own) + [source_last] * len(cross)
    for ours, theirs, end in zip(found_present, present, ends, strict=True):
        for row, position in enumerate(end):  # what lies behind is not carried over, unless past and present are one
            np.testing.assert_allclose(ours[row, :, : position + 1], theirs[row, :, : position + 1], atol=2e-5, rtol=0)


def run(graph: Path, outputs: list[str], inputs: dict[str, Tensor]) -> list[NDArray[Any]]:
    session = ort.InferenceSession(graph, providers=[CPU.provider])
    found: list[NDArray[Any]] = session.run(outputs, {name: tensor.numpy() for name, tensor in inputs.items()})
    return found
