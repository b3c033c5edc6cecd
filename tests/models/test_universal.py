"""Transformers with the same layer at every depth: against layers with weights of their own, and as they are served."""

from collections.abc import Sequence
from contextlib import closing
from math import exp
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from engine.cpu.decoder import CpuDecoder
from export.native.graphs import obstacle
from export.tracing.trace import trace
from export.tracing.variant import VariantError, variant
from export.weights.save import save
from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.weights import check_size
from models.config import ModelConfig
from models.halting import Halting
from models.layers import DecoderLayer
from models.package.derived import weights
from models.positions import sinusoids
from models.transformer import Transformer
from tests.models.test_transformer import config, decode_stepwise, random_batch, random_model
from tests.models.without_cache import check_searches

LAYERS = 3
SHARED = config(shared_layers=True, encoder_layers=LAYERS, decoder_layers=LAYERS)
UNIVERSAL = SHARED.model_copy(update={"depth_signal": True})
HALTING = UNIVERSAL.model_copy(update={"halting": True})

Pass = tuple[list[list[float]], list[list[float]]]
"""What every token enters a depth with, and what it leaves it with."""


def model_of(shape: ModelConfig) -> Transformer:
    """Whose tokens stop at different depths, if they do."""
    model = random_model(shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "halting" in name:
                parameter.copy_(4 * parameter if "weight" in name else torch.zeros(1))
    return model


def test_it_is_a_transformer_whose_layers_are_equal() -> None:
    universal = random_model(SHARED)
    plain = Transformer(SHARED.model_copy(update={"shared_layers": False})).eval()
    state = universal.state_dict()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(state[name].repeat((LAYERS, 1)[: state[name].dim()]) if "cross_kv" in name else state[name])
    batch = random_batch(SHARED, [9, 5, 1], 12)
    torch.testing.assert_close(universal(*batch), plain(*batch), atol=1e-5, rtol=0)
    numbers = sum(parameter.numel() for parameter in universal.parameters())
    assert numbers < sum(parameter.numel() for parameter in plain.parameters()) / 1.8
    assert weights(SHARED)[0] < weights(plain.config)[0]


def test_its_weights_are_counted_once(tmp_path: Path) -> None:
    """By whoever looks at the size of a file before anything as large is made of it."""
    file, numbers = tmp_path / "model.safetensors", sum(one.numel() for one in Transformer(SHARED).parameters())
    file.write_bytes(bytes(2 * numbers))
    check_size(SHARED, file)
    file.write_bytes(bytes(numbers // 4))
    with pytest.raises(CheckpointError):
        check_size(SHARED, file)


@torch.no_grad()
def test_every_layer_is_told_its_number_and_the_positions() -> None:
    """Dehghani et al. 2019, equations 4 to 6, for the encoder."""
    model = random_model(UNIVERSAL)
    source, lengths, _ = random_batch(UNIVERSAL, [7], 3)
    positions, depths = sinusoids(7, UNIVERSAL.width), sinusoids(LAYERS + 1, UNIVERSAL.width)
    x = model.source_embedding[source[0]]
    for depth in range(1, LAYERS + 1):
        x = model.encoder[0](x + positions + depths[depth], lengths)
    torch.testing.assert_close(model.encode(source, lengths)[0], x, atol=1e-5, rtol=0)


def in_plain_python(halting: Halting, passes: Sequence[Pass]) -> tuple[Tensor, Tensor]:
    """Graves 2016, equations 5 to 11, token by token, with numbers of Python: every y, and N + R."""
    weight, bias = halting.weight.tolist(), float(halting.bias)
    expected, costs, halted = list[list[float]](), list[float](), set[int]()
    for token in range(len(passes[0][0])):
        spent, mean = 0.0, [0.0] * len(weight)
        for depth, (entered, states) in enumerate(passes, 1):
            logit = bias + sum(a * b for a, b in zip(entered[token], weight, strict=True))
            p = 1 / (1 + exp(-logit))
            halts = spent + p > 0.99 or depth == len(passes)
            share = 1 - spent if halts else p
            mean = [old + share * new for old, new in zip(mean, states[token], strict=True)]
            if halts:
                costs.append(depth + share)
                halted.add(depth)
                break
            spent += p
        expected.append(mean)
    assert len(halted) > 1
    return torch.tensor(expected), torch.tensor(costs)


@torch.no_grad()
def test_tokens_of_a_source_halt_as_in_plain_python() -> None:
    model = model_of(HALTING)
    source, lengths, _ = random_batch(HALTING, [17], 3)
    positions, depths = sinusoids(17, HALTING.width), sinusoids(LAYERS + 1, HALTING.width)
    state, passes = model.source_embedding[source[0]], list[Pass]()
    for depth in range(1, LAYERS + 1):
        entered = state + positions + depths[depth]
        state = model.encoder[0](entered, lengths)
        passes.append((entered.tolist(), state.tolist()))
    expected, costs = in_plain_python(model.encoder_halting, passes)
    torch.testing.assert_close(model.train().encode(source, lengths)[0], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(model.encoder_halting.take_cost(), costs, atol=1e-5, rtol=0)


@torch.no_grad()
def test_tokens_of_a_target_halt_as_in_plain_python() -> None:
    """The same for the decoder, whose tokens look at others of the target and at the source at every depth."""
    model = model_of(HALTING).train()
    model.decoder_halting.bias.fill_(4.0)  # or these would all reach the last depth
    source, lengths, target = random_batch(HALTING, [7], 17)
    positions, depths = sinusoids(17, HALTING.width), sinusoids(LAYERS + 1, HALTING.width)
    _, starts = model.encode_source(source, lengths)
    key, value = starts[:2]
    layer, state, passes = model.decoder[0], model.target_embedding[target[0]], list[Pass]()
    assert isinstance(layer, DecoderLayer)
    for depth in range(1, LAYERS + 1):
        entered = state + positions + depths[depth]
        looked = layer.cross.over_target(layer.cell.over_target(entered, 1, None), key, value, lengths)
        state = layer.feed_forward(looked)
        passes.append((entered.tolist(), state.tolist()))
    expected, costs = in_plain_python(model.decoder_halting, passes)
    *_, found = model.decode_target(starts, lengths, target)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(model.decoder_halting.take_cost(), costs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [UNIVERSAL, HALTING])
@torch.no_grad()
def test_ways_through_the_model_agree(shape: ModelConfig) -> None:
    model = model_of(shape)
    source, lengths, target = random_batch(shape, [9, 5, 1], 12)
    forced = model(source, lengths, target)
    stepwise = decode_stepwise(model, source, lengths, target, capacity=20)
    torch.testing.assert_close(stepwise, forced, atol=1e-5, rtol=0)
    packed, places = torch.cat([source[0], source[1, :5]]), torch.cat([torch.arange(9), 9 + torch.arange(5)])
    positions = torch.cat([torch.arange(9), torch.arange(5)])
    padded = torch.tensor([[*range(9)], [*range(9, 14), 0, 0, 0, 0]])
    found = model.encode_packed(packed, positions, padded, places, lengths[:2])
    torch.testing.assert_close(found[9:], model.encode(source, lengths)[1, :5], atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [UNIVERSAL, HALTING], ids=["fixed", "halting"])
def test_it_is_served_in_any_batch(shape: ModelConfig, tmp_path: Path) -> None:
    model = model_of(shape)
    graphs = save(trace(model), tmp_path)
    with closing(CpuDecoder(graphs, 64, 64)) as decoder:
        check_searches(decoder, model)
    stored = (tmp_path / "weights.bin").stat().st_size
    assert stored < 4.2 * sum(parameter.numel() for parameter in model.parameters()), "a layer is stored once"


def test_what_it_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="depth_signal is true, positions are 'none'"):
        config(depth_signal=True, positions="none")
    with pytest.raises(ValidationError, match="halting is True, and shared_layers is False"):
        config(halting=True)
    with pytest.raises(VariantError, match="shared_layers is True; 8 bits are made of layers where it is False"):
        variant(Transformer(SHARED), "int8", "fused")
    assert obstacle(Transformer(UNIVERSAL)) == "shared_layers is True; native ones have False"
