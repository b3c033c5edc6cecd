"""Native graphs have the nodes, inputs and outputs that the contract says, of every model there can be."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from export.native.graphs import native_graphs, obstacle
from export.quantization.recipe import Recipe
from export.tracing.graphs import NativeModels, histogram
from models.config import ModelConfig
from models.package import signature
from tests.export.native.emulated import emulated
from tests.export.native.recipes import recipe_of
from tests.models.test_transformer import EVERY, VARIANTS, config, random_model

POST_NORM = config()
every_model = pytest.mark.parametrize("variant", EVERY.values(), ids=EVERY)


def operators(model: ir.Model) -> Counter[str]:
    """Ours without their domain."""
    return Counter({name.removeprefix("dragoman."): count for name, count in histogram(model).items()})


def check(graphs: NativeModels, folder: Path) -> None:
    """By the onnx library."""
    for model in (graphs.encoder, graphs.decoder, graphs.logits):
        ir.save(model, folder / "graph.onnx")
        onnx.checker.check_model(folder / "graph.onnx", full_check=True)


@every_model
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("shortlist", [False, True])
def test_what_is_declared_is_what_the_graphs_are(
    variant: ModelConfig, quantized: bool, shortlist: bool, tmp_path: Path
) -> None:
    model = random_model(variant)
    assert obstacle(model) is None
    graphs = native_graphs(model, recipe_of(model) if quantized else {}, shortlist)
    check(graphs, tmp_path)
    assert [value.name for value in graphs.encoder.graph.inputs] == list(signature.NATIVE_ENCODER_INPUTS)
    assert [value.name for value in graphs.encoder.graph.outputs] == [signature.HIDDEN, signature.CROSS]
    inputs = {value.name: value for value in graphs.decoder.graph.inputs}
    outputs = {value.name: value for value in graphs.decoder.graph.outputs}
    step = [*signature.NATIVE_DECODER_INPUTS, *(tensor.past for tensor in graphs.spec.cache)]
    assert list(inputs) == [*step, *([signature.ALLOWED] if shortlist else [])]
    written = [tensor for tensor in graphs.spec.cache if tensor.present != tensor.past]
    assert {tensor.owner for tensor in written} == {"hypothesis"}
    expected = [*signature.DECODER_OUTPUTS, *(tensor.present for tensor in written)]
    assert list(outputs) == [*expected, signature.HIDDEN, signature.CROSS_QUERY, signature.NORMALISER]
    for tensor in graphs.spec.cache:
        given = inputs[tensor.past]
        kept = "fp16" if quantized and tensor.grows else "fp32"
        assert (tensor.precision, given.dtype) == (kept, {"fp32": ir.DataType.FLOAT, "fp16": ir.DataType.FLOAT16}[kept])
        assert given.shape is not None and len(given.shape) == len(tensor.axes)
        numbers = [axis for axis in tensor.axes if isinstance(axis, int)]
        assert [axis for axis in given.shape.dims if isinstance(axis, int)] == numbers


@every_model
@pytest.mark.parametrize("quantized", [False, True])
@torch.no_grad()
def test_whole_rows_of_logits(variant: ModelConfig, quantized: bool, tmp_path: Path) -> None:
    """By operators of ONNX alone."""
    model = random_model(variant)
    recipe: Recipe = recipe_of(model) if quantized else {}
    ir.save(native_graphs(model, recipe).logits, tmp_path / "logits.onnx")
    hidden = torch.randn(5, variant.width)
    [found] = ort.InferenceSession(tmp_path / "logits.onnx").run([signature.LOGITS], {"hidden": hidden.numpy()})
    reference, size = emulated(model, recipe), variant.target_vocab_size
    expected = hidden @ reference.output_weight[:size].T + reference.output_bias[:size]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_a_layer_is_four_nodes_or_six() -> None:
    """A post-norm model in 8 bits: what the measurements of the operators were made with."""
    model = random_model(POST_NORM)
    graphs, layers = native_graphs(model, recipe_of(model)), POST_NORM.encoder_layers
    assert operators(graphs.encoder) == Counter(Embed=1, QuantLinear=4 * layers + 1, PackedAttention=layers)
    layers = POST_NORM.decoder_layers
    expected = Counter(Embed=1, QuantLinear=6 * layers, SelfAttention=layers, SourceAttention=layers, BestTokens=1)
    assert operators(graphs.decoder) == expected


def test_static_scales_let_the_feed_forward_stay_in_8_bits() -> None:
    model = random_model(POST_NORM)
    graphs = native_graphs(model, recipe_of(model, per_row=False))
    ups = [node for node in graphs.decoder.graph if node.op_type == "QuantLinearU8"]
    assert len(ups) == POST_NORM.decoder_layers
    for up in ups:
        [down] = up.outputs[0].consumers()
        assert down.op_type == "QuantLinear"
        assert up.attributes["out_scale"].as_float() == down.attributes["scale"].as_float() > 0


def test_a_layer_that_the_recipe_has_not_stays_as_it_is() -> None:
    model = random_model(POST_NORM)
    graphs = native_graphs(model, recipe_of(model, without="encoder."))
    counts = operators(graphs.encoder)
    assert (counts["Linear"], counts["QuantLinear"]) == (4 * POST_NORM.encoder_layers, 1)
    recurrent = random_model(VARIANTS["recurrent"])
    graphs = native_graphs(recurrent, recipe_of(recurrent, without="forget"))
    assert operators(graphs.decoder)["Linear"] == recurrent.config.decoder_layers


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_heads_that_attention_does_not_take_are_named(side: str) -> None:
    model = random_model(config(**{f"{side}_heads": 12}))
    assert (obstacle(model) or "").startswith(f"the {side}'s heads have 4 numbers (width 48, 12 heads)")
