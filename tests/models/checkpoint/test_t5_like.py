"""models.checkpoint.t5_like: logits are those of transformers; what is not computed here is refused by key and value.

That the exported graphs have the tokens of `generate` is the business of tests.engine.exact.test_families.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from models.checkpoint import CheckpointError
from models.checkpoint.files.relative import bucket
from models.checkpoint.t5_like import read
from tests.checkpoints import edit_json
from tests.models.families import T5_LIKE, VOCABULARY, Family, write_family

WEIGHTS = "model.safetensors"
FIRST = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_family(tmp_path, T5_LIKE["t5, version 1.1"])


def assert_logits_are_those_of_transformers(folder: Path) -> None:
    """In fp64, but for its norms: random weights make logits of 50, and scores without a scale magnify roundings."""
    ours = read(folder).model.double()
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64).eval()
    lengths = torch.tensor([60, 1, 23])
    sources, targets = (torch.randint(2, VOCABULARY, (3, length)) for length in (60, 50))
    mask = (torch.arange(60) < lengths[:, None]).long()
    with torch.no_grad():
        expected = theirs(input_ids=sources, attention_mask=mask, decoder_input_ids=targets).logits
        torch.testing.assert_close(ours(sources, lengths, targets), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("family", T5_LIKE.values(), ids=T5_LIKE)
def test_logits_are_those_of_transformers(family: Family, tmp_path: Path) -> None:
    assert_logits_are_those_of_transformers(write_family(tmp_path, family))


@pytest.mark.parametrize("name", ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"])
def test_the_table_may_have_the_name_of_a_copy(name: str, folder: Path) -> None:
    """As in madlad400-3b-mt, whose output layer is another."""
    tensors = load_file(folder / WEIGHTS)
    save_file(tensors | {name: tensors.pop("shared.weight")}, folder / WEIGHTS)
    assert set(load_file(folder / WEIGHTS)) >= {name, "lm_head.weight"}
    assert_logits_are_those_of_transformers(folder)


def test_longest_target_and_source_are_those_of_training(folder: Path) -> None:
    assert read(folder).config.max_positions == 512
    edit_json(folder / "config.json", tokenizer_class="ByT5Tokenizer")
    assert read(folder).config.max_positions == 1024


def test_buckets_are_exact_near_and_logarithmic_far() -> None:
    distances = torch.tensor([-200, -20, -5, -2, -1, 0, 1, 2, 5, 20, 200])
    assert bucket(distances, True, 8, 20).tolist() == [3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7]
    assert bucket(distances, False, 8, 20).tolist() == [7, 7, 4, 2, 1, 0, 0, 0, 0, 0, 0]


def test_old_name_of_the_scale_is_understood(tmp_path: Path) -> None:
    """Before version 5 of transformers, `tie_word_embeddings` alone said that outputs are not scaled."""
    write_family(tmp_path, T5_LIKE["t5"])
    scaled = read(tmp_path).model.decoder_norm.state_dict()["weight"]
    edit_json(tmp_path / "config.json", scale_decoder_outputs=None, tie_word_embeddings=False)
    assert torch.equal(scaled, read(tmp_path).model.decoder_norm.state_dict()["weight"] * 40**-0.5)


def test_number_of_decoder_layers_is_the_encoders_unless_said(tmp_path: Path) -> None:
    write_family(tmp_path, T5_LIKE["t5"])
    edit_json(tmp_path / "config.json", num_decoder_layers=None)
    with pytest.raises(CheckpointError, match=r"decoder\.block\.2\..* is missing"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-mish"}, "feed_forward_proj is 'gated-mish'; supported: relu, gelu"),
        ({"dense_act_fn": "relu"}, "dense_act_fn is 'relu'; by feed_forward_proj 'gated-gelu' it is 'gelu_new'"),
        ({"is_gated_act": False}, "is_gated_act is False; "),
        ({"is_decoder": True}, "is_decoder is True; "),
        ({"is_encoder_decoder": False}, "is_encoder_decoder is False; "),
        ({"quantization_config": {"bits": 8}}, "quantization_config"),
        ({"relative_attention_num_buckets": 2}, "relative_attention_num_buckets is 2; "),
        ({"relative_attention_max_distance": 4}, "relative_attention_max_distance is 4; with 8 buckets it must be abo"),
        ({"relative_attention_num_buckets": 16}, r"relative_attention_bias.weight has shape \[8, 3\]; expected \[16"),
        ({"eos_token_id": [1, 2]}, r"eos_token_id is \[1, 2\]; "),
        ({"d_model": None}, "d_model is missing"),
        ({"num_heads": 0}, "num_heads is 0; "),
        ({"d_kv": 8}, r"SelfAttention.q.weight has shape \[48, 40\]; expected \[24, 40\]"),
        ({"num_layers": 2}, "has no tensor encoder.block.2"),
        ({"feed_forward_proj": "gelu", "is_gated_act": None, "dense_act_fn": None}, "wi.weight is missing"),
    ],
)
def test_config_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    edit_json(folder / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message):
        read(folder)


def test_start_token_is_named(folder: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        edit_json(folder / name, decoder_start_token_id=None)
    with pytest.raises(CheckpointError, match="decoder_start_token_id is missing"):
        read(folder)


def test_missing_relative_positions_are_named(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({name: tensor for name, tensor in tensors.items() if name != FIRST}, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=f"tensor {FIRST} is missing"):
        read(folder)
