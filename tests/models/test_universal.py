"""Transformers with the same layer at every depth: against layers with weights of their own, and as they are served."""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from engine.cpu.decoder import CpuDecoder
from export.native.graphs import obstacle
from export.tracing.trace import trace
from export.tracing.variant import VariantError, variant
from export.weights.save import save
from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.weights import check_size
from models.package.signature import weights
from models.transformer import Transformer, sinusoids
from tests.models.test_transformer import config, decode_stepwise, random_batch, random_model
from tests.models.without_cache import PrefixDecoder, search, some_sources

LAYERS = 3
SHARED = config(shared_layers=True, encoder_layers=LAYERS, decoder_layers=LAYERS)
UNIVERSAL = SHARED.model_copy(update={"depth_signal": True})


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


@torch.no_grad()
def test_ways_through_the_model_agree() -> None:
    model = random_model(UNIVERSAL)
    source, lengths, target = random_batch(UNIVERSAL, [9, 5, 1], 12)
    forced = model(source, lengths, target)
    stepwise = decode_stepwise(model, source, lengths, target, capacity=20)
    torch.testing.assert_close(stepwise, forced, atol=1e-5, rtol=0)
    packed, places = torch.cat([source[0], source[1, :5]]), torch.cat([torch.arange(9), 9 + torch.arange(5)])
    positions = torch.cat([torch.arange(9), torch.arange(5)])
    padded = torch.tensor([[*range(9)], [*range(9, 14), 0, 0, 0, 0]])
    found = model.encode_packed(packed, positions, padded, places, lengths[:2])
    torch.testing.assert_close(found[9:], model.encode(source, lengths)[1, :5], atol=1e-5, rtol=0)


def test_it_is_served_in_any_batch(tmp_path: Path) -> None:
    model = random_model(UNIVERSAL)
    graphs = save(trace(model), tmp_path)
    expected = search(PrefixDecoder(model), UNIVERSAL)
    with closing(CpuDecoder(graphs, 64, 64)) as decoder:
        found = search(decoder, UNIVERSAL)
        each = [search(decoder, UNIVERSAL, [source]) for source in some_sources(UNIVERSAL)]
    alone = {key: answer for answers in each for key, answer in answers.items()}
    for key, answer in expected.items():
        assert [one.token_ids for one in found[key].hypotheses] == [one.token_ids for one in answer.hypotheses], key
        assert found[key].hypotheses == alone[key].hypotheses, key
    assert len({one.token_ids for answer in found.values() for one in answer.hypotheses}) > 8
    stored = (tmp_path / "weights.bin").stat().st_size
    assert stored < 4.2 * sum(parameter.numel() for parameter in model.parameters()), "a layer is stored once"


def test_what_it_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="depth_signal is true, positions are 'none'"):
        config(depth_signal=True, positions="none")
    with pytest.raises(VariantError, match="shared_layers is True; 8 bits are made of layers where it is False"):
        variant(Transformer(SHARED), "int8", "fused")
    assert obstacle(Transformer(UNIVERSAL)) == "shared_layers is True; native ones have False"
