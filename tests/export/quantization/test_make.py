"""The recipe of a model: every layer is in it, and what it says of activations is measured."""

import numpy as np
import pytest
import torch

from export.quantization.calibrate import Inputs, linear_layers, observe
from export.quantization.make import choose_activations, make_recipe
from models.config import ModelConfig
from models.transformer import Transformer

PAIRS = [((5, 9, 3, 0), (7, 8, 0)), ((11, 0), (4, 4, 4, 12, 0)), ((6, 6, 2, 2, 0), (9, 0))]


@pytest.fixture(scope="module", params=["attention", "ssru"])
def model(request: pytest.FixtureRequest) -> Transformer:
    torch.manual_seed(3)
    config = ModelConfig(
        source_vocab_size=40,
        target_vocab_size=40,
        width=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_heads=4,
        decoder_heads=4,
        encoder_ffn=48,
        decoder_ffn=48,
        max_positions=16,
        pad_id=39,
        end_id=0,
        decoder_start_id=39,
        decoder_cell=request.param,
    )
    return Transformer(config).eval()


def test_every_linear_layer_and_the_output_layer_are_in_it(model: Transformer) -> None:
    recipe = make_recipe(model, PAIRS)
    assert set(recipe) == {*linear_layers(model), "output"}
    for name, layer in linear_layers(model).items():
        found = recipe[name]
        assert found.weight.shape == layer.weight.shape
        np.testing.assert_allclose(
            found.weight * found.scales[:, None], layer.weight.detach().numpy(), atol=4 * float(found.scales.max())
        )
        assert found.activations.zero_point == (0 if name.endswith("down") else 128)
    assert recipe["output"].weight.shape == (40, 32)


def test_layers_see_the_teacher_forced_pass(model: Transformer) -> None:
    found = observe(model, PAIRS)
    source, target = (sum(map(len, side)) for side in zip(*PAIRS, strict=True))
    assert {len(found[name].kept) for name in found if name.startswith(("encoder", "cross_kv"))} == {source}
    assert {len(found[name].kept) for name in found if name.startswith(("decoder", "output"))} == {target}
    hidden, logits = [], []
    with torch.no_grad():
        for given, translation in PAIRS:
            sources, lengths = torch.tensor([given]), torch.tensor([len(given)])
            hidden.append(model.encode(sources, lengths)[0])
            logits.append(model(sources, lengths, torch.tensor([[39, *translation[:-1]]]))[0])
        ours = model.logits(torch.from_numpy(found["output"].kept))[:, :40]
    np.testing.assert_array_equal(found["cross_kv"].kept, torch.cat(hidden))
    np.testing.assert_allclose(ours, torch.cat(logits), atol=1e-4)


def test_the_scale_is_the_best_there_is_by_squared_error() -> None:
    kept = np.random.default_rng(1).standard_normal((4000, 16)).astype(np.float32)
    kept[0, 0] = 40.0
    chosen = choose_activations(Inputs(kept, 40.0), unsigned=False)

    def error(scale: float) -> float:
        with torch.no_grad():
            rounded = torch.fake_quantize_per_tensor_affine(torch.from_numpy(kept), scale, 0, -128, 127)
        return float(np.square(rounded.numpy() - kept).mean())

    assert chosen.zero_point == 128
    assert error(chosen.scale) <= min(error(40.0 / 127), error(4.0 / 127), error(chosen.scale * 1.3))
    assert chosen.scale < 40.0 / 127


def test_inputs_that_are_never_negative_use_all_numbers() -> None:
    kept = np.random.default_rng(1).random((100, 16), np.float32)
    chosen = choose_activations(Inputs(kept, 1.0), unsigned=True)
    assert chosen.zero_point == 0
    assert 0.9 / 255 < chosen.scale <= 1.0 / 255
