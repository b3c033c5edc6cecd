"""Layers in 8 bits, as ONNX Runtime computes them: sums of integers are exact on every processor, and rows alone."""

import io

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim

from engine.devices.session import CPU, open_session
from export.quantization.layers import FeedForward8, Linear8
from export.quantization.recipe import Activations, QuantizedLinear
from models.config import ModelConfig
from models.norms import Residual

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # of torch, by torch

CHOOSE = np.random.default_rng(5)
WIDTH, INNER = 64, 640
"""Sums of 640 products do not fit into the whole numbers of fp32."""


def quantized(outputs: int, inputs: int, activations: Activations, extreme: bool = False) -> QuantizedLinear:
    numbers = (
        CHOOSE.choice([-127, 127], (outputs, inputs)) if extreme else CHOOSE.integers(-127, 128, (outputs, inputs))
    )
    scales = CHOOSE.random(outputs, np.float32) / np.float32(500) + np.float32(1e-3)
    return QuantizedLinear(numbers.astype(np.int8), scales, activations)


def session(module: nn.Module, x: Tensor) -> ort.InferenceSession:
    with torch.no_grad():
        program = torch.onnx.export(module.eval(), (x,), dynamic_shapes=({0: Dim("rows", max=64)},), opset_version=21)
    assert program is not None
    model = io.BytesIO()
    onnx.save(program.model_proto, model)
    return open_session(model.getvalue(), CPU)


def run(found: ort.InferenceSession, x: Tensor) -> NDArray[np.float32]:
    [name] = [given.name for given in found.get_inputs()]
    [y] = found.run(None, {name: x.numpy()})
    return np.asarray(y)


@pytest.mark.parametrize("per_row", [True, False])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("zero_point", [0, 128])
def test_onnx_runtime_computes_what_pytorch_does(per_row: bool, bits: int, zero_point: int) -> None:
    layer = Linear8(quantized(48, INNER, Activations(0.02, zero_point, bits=bits)), torch.randn(48), per_row)  # type: ignore[arg-type]
    x = torch.randn(7, INNER) if zero_point else torch.randn(7, INNER).relu()
    x[3] = 0
    found = session(layer, x)
    expected = layer(x).numpy()
    largest = np.abs(expected).max()
    np.testing.assert_allclose(run(found, x), expected, atol=2e-6 * largest)
    full = x @ (layer.weight * layer.scales[:, None]).T + layer.bias
    clipped = x.abs().max() > 0.02 * 127 and not per_row
    if not clipped:
        assert np.abs(expected - full.numpy()).max() < largest * (2e-2 if bits == 8 else 2e-4)
    for rows in ([0], [1, 2], [5, 3, 1], list(range(7)) * 3):  # alone and among others, to the last bit
        np.testing.assert_array_equal(run(found, x[rows]), run(found, x)[rows])


def test_extreme_numbers_do_not_saturate() -> None:
    """Without VNNI, pairs of products are added in 16 bits by ONNX Runtime's first choice of kernels."""
    layer = Linear8(quantized(96, INNER, Activations(1.0, 128), extreme=True), None, per_row=False)
    x = torch.from_numpy(CHOOSE.choice([-128.0, 127.0], (9, INNER)).astype(np.float32))
    expected = (x.double() @ layer.weight.double().T).numpy() * layer.scales.numpy()
    np.testing.assert_allclose(run(session(layer, x), x), expected, rtol=1e-6)


def test_a_feed_forward_sublayer_keeps_to_8_bits() -> None:
    config = ModelConfig(
        source_vocab_size=8,
        target_vocab_size=8,
        width=WIDTH,
        encoder_layers=1,
        decoder_layers=1,
        encoder_heads=1,
        decoder_heads=1,
        encoder_ffn=INNER,
        decoder_ffn=INNER,
        max_positions=8,
        pad_id=7,
        end_id=0,
        decoder_start_id=7,
    )
    up = Linear8(quantized(INNER, WIDTH, Activations(0.02, 128), extreme=True), torch.randn(INNER), per_row=False)
    down = Linear8(quantized(WIDTH, INNER, Activations(0.05, 0)), torch.randn(WIDTH), per_row=False)
    layer = FeedForward8(Residual(config), up, down)
    x = torch.randn(5, WIDTH)
    found = session(layer, x)
    with torch.no_grad():
        np.testing.assert_allclose(run(found, x), layer(x).numpy(), atol=1e-5)
        inner = up(x).relu().clamp(max=0.05 * 255)
        near = layer.residual.leave(x, inner @ (down.weight * down.scales[:, None]).T + down.bias)
    np.testing.assert_allclose(run(found, x), near, atol=0.05)
    np.testing.assert_array_equal(run(found, x[2:3]), run(found, x)[2:3])
