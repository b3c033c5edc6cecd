"""An encoder for GPUs gives what the model gives, however sources of several lengths are packed."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from export.native.device.encoder import device_encoder
from export.native.device.step import encoder_obstacle, obstacle, with_device_step
from export.tracing.graphs import histogram
from export.tracing.trace import trace
from export.tracing.variant import DTYPES, variant
from export.weights.save import save
from kernels.device_library import device_library
from kernels.library import LibraryError
from models.config import ModelConfig
from models.package import signature
from models.package.declared.graphs import GraphsSpec, NativeStep
from models.package.declared.precision import Precision
from models.package.manifest import WEIGHTS
from models.transformer import Transformer
from tests.export.native.test_device_step import MODELS, Run, by_numpy, by_onnxruntime, large
from tests.models.test_transformer import config, random_model

LENGTHS = (9, 1, 4, 17)
FILL = 3
"""Tokens that belong to no source."""
HAS_ENCODER = {name: shape for name, shape in MODELS.items() if encoder_obstacle(random_model(shape)) is None}

every_model = pytest.mark.parametrize("shape", HAS_ENCODER.values(), ids=HAS_ENCODER)


@torch.no_grad()
def largest_error(model: Transformer, run: Run) -> float:
    """Of hidden states, and of keys and values."""
    choose, shape = np.random.default_rng(2), model.config
    sources = [choose.integers(1, shape.source_vocab_size - 1, length) for length in LENGTHS]
    lengths = np.array([*LENGTHS, *[1] * FILL], np.int32)
    firsts = (np.cumsum(lengths) - lengths).astype(np.int32)
    ids = np.concatenate([*sources, np.full(FILL, shape.pad_id)])
    positions = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
    given = ids, positions, np.repeat(firsts, lengths), np.repeat(lengths, lengths)
    found = run(dict(zip(signature.DEVICE_ENCODER_INPUTS, given, strict=True)))
    errors = []
    for source, first, length in zip(sources, firsts[: len(LENGTHS)], LENGTHS, strict=True):
        hidden = model.encode(torch.tensor(source)[None], torch.tensor([length]))[0]
        for name, expected in ((signature.HIDDEN, hidden), (signature.CROSS, model.cross_kv(hidden))):
            errors.append(np.abs(found[name][first : first + length].astype(np.float32) - expected.numpy()).max())
    return float(np.max(errors))


def encoder_of(shape: ModelConfig, precision: Precision) -> ir.Model:
    return device_encoder(random_model(shape).to(DTYPES[precision]))


@every_model
def test_fp32_gives_the_hidden_states_of_the_model(shape: ModelConfig) -> None:
    assert largest_error(random_model(shape), by_numpy(encoder_of(shape, "fp32"))) < 1e-4


@every_model
def test_the_library_computes_the_same_in_fp16(shape: ModelConfig, tmp_path: Path) -> None:
    try:
        device_library()
    except LibraryError as error:
        pytest.skip(str(error))
    run = by_onnxruntime(encoder_of(shape, "fp16"), tmp_path / "device.onnx")
    assert largest_error(random_model(shape), run) < 0.05


@every_model
def test_what_is_declared_is_what_the_graph_is(shape: ModelConfig) -> None:
    graph = encoder_of(shape, "fp16").graph
    assert [it.name for it in graph.inputs] == list(signature.DEVICE_ENCODER_INPUTS)
    assert [it.name for it in graph.outputs] == [signature.HIDDEN, signature.CROSS]
    assert [it.dtype for it in graph.outputs] == [ir.DataType.FLOAT16] * 2
    cross = shape.decoder_layers * 2 * shape.inner(shape.decoder_heads)
    assert [it.shape and it.shape[1] for it in graph.outputs] == [shape.width, cross]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_has_no_more_nodes_than_it_needs(norm: str) -> None:
    layers = 3
    counts = histogram(encoder_of(large(config(norm=norm, encoder_layers=layers)), "fp16"))
    of_layer = {"Gemm": 4, "dragoman.PackedAttention": 1, "Relu": 1, "com.microsoft.SkipLayerNormalization": 2}
    beside = {"Gather": 2, "Add": 1, "Gemm": 1} | ({"LayerNormalization": 1} if norm == "pre" else {})
    assert counts == {name: layers * of_layer.get(name, 0) + beside.get(name, 0) for name in of_layer | beside}


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (config(encoder_heads=12), "the encoder's heads have 4 numbers (width 48, 12 heads); steps for GPUs have"),
        (config(sentences=2, positions="learned"), "sources have a second sentence"),
    ],
)
def test_what_it_cannot_do_is_named_and_leaves_the_standard_encoder(shape: ModelConfig, says: str) -> None:
    model = random_model(large(shape))
    assert obstacle(model) is None
    assert (encoder_obstacle(model) or "").startswith(says)
    half = variant(model, "fp16", "fused")
    graphs = with_device_step(trace(half), half)
    assert graphs.spec.device_step is not None and graphs.spec.device_step.encoder is None
    assert signature.DEVICE_ENCODER not in graphs.models


@pytest.mark.parametrize("name", ["plain", "pre-norm, learned positions, untied output"])
def test_its_weights_are_in_the_file_already(name: str, tmp_path: Path) -> None:
    model = variant(random_model(MODELS[name]), "fp16", "fused")
    standard = trace(model)
    weights = {}
    for folder, graphs in {"with": with_device_step(standard, model), "without": standard}.items():
        (tmp_path / folder).mkdir()
        save(graphs, (tmp_path / folder))
        weights[folder] = ((tmp_path / folder) / WEIGHTS).read_bytes()
    assert weights["with"] == weights["without"]
    spec = with_device_step(standard, model).spec
    assert GraphsSpec.model_validate_json(spec.model_dump_json()) == spec
    assert {signature.DEVICE_ENCODER, signature.DEVICE_DECODER} <= {file.file for file in spec.files}


def test_older_packages_have_a_step_and_no_encoder_for_gpus() -> None:
    step = NativeStep.model_validate({"decoder": {"file": "d.onnx", "weight_bytes": 1}, "operators": 1, "cache": []})
    assert step.encoder is None
    assert [file.file for file in step.files] == ["d.onnx"]
