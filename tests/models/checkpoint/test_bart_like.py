"""models.checkpoint.bart_like: what config.json says and transformers does not do is refused by key and value.

That the models are those of transformers is the business of tests.engine.exact.test_families.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM

from models.checkpoint import CheckpointError
from models.checkpoint.bart_like import read
from models.checkpoint.files.reading import read_json
from tests.checkpoints import edit_json
from tests.models.families import BART_LIKE, TARGETS, VOCABULARY, write_family


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_family(tmp_path, BART_LIKE["bart, as for summaries"])


def test_generation_defaults(folder: Path) -> None:
    generation = read(folder).generation
    assert (generation.forced_begin_id, generation.forced_end_id, generation.min_new_tokens) == (0, 2, 11)
    edit_json(folder / "generation_config.json", min_new_tokens=3)
    assert read(folder).generation.min_new_tokens == 3, "generate does not look at min_length then"


def test_old_name_of_the_forced_beginning_is_understood(folder: Path) -> None:
    """As bart-large-cnn has it. In transformers it holds where there is no generation_config.json."""
    edit_json(folder / "config.json", force_bos_token_to_be_generated=True, forced_bos_token_id=0, bos_token_id=9)
    for name, forced in (("generation_config.json", 0), ("config.json", 9)):
        found = AutoModelForSeq2SeqLM.from_pretrained(folder).generation_config.forced_bos_token_id
        assert found == read(folder).generation.forced_begin_id == forced, name
        (folder / "generation_config.json").unlink(missing_ok=True)
    edit_json(folder / "config.json", force_bos_token_to_be_generated=False)
    assert read(folder).generation.forced_begin_id == 0


def test_old_name_of_the_forced_beginning_wants_a_token(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    content = read_json(folder / "config.json") | {"force_bos_token_to_be_generated": True}
    (folder / "config.json").write_text(json.dumps({key: content[key] for key in content if key != "bos_token_id"}))
    with pytest.raises(CheckpointError, match="bos_token_id is missing; by force_bos_token_to_be_generated"):
        read(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalize_before": True}, "normalize_before is True; a bart model of transformers is computed with False"),
        ({"normalize_embedding": False}, "normalize_embedding is False; "),
        ({"static_position_embeddings": True}, "static_position_embeddings is True; "),
        ({"add_bias_logits": True}, "add_bias_logits is True; "),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False; "),
        ({"quantization_config": {"bits": 8}}, "quantization_config"),
        ({"activation_function": "gelu_fast"}, "activation_function is 'gelu_fast'; "),
        ({"d_model": None}, "d_model is missing"),
        ({"encoder_ffn_dim": 0}, "encoder_ffn_dim is 0; "),
        ({"encoder_attention_heads": 5}, "width 48 is not a multiple of 5 heads"),
        ({"max_position_embeddings": 71}, r"embed_positions.weight has shape \[72, 48\]; expected \[73, 48\]"),
        ({"encoder_layers": 1}, "has no tensor model.encoder.layers.1"),
    ],
)
def test_config_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    edit_json(folder / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message):
        read(folder)


@pytest.mark.parametrize("key", ["eos_token_id", "decoder_start_token_id"])
@pytest.mark.parametrize("name", ["m2m_100", "fsmt"])
def test_padding_has_no_position(key: str, name: str, tmp_path: Path) -> None:
    folder = write_family(tmp_path, BART_LIKE[name])
    for file in ("config.json", "generation_config.json"):
        edit_json(folder / file, **{key: 1})
    with pytest.raises(CheckpointError, match=f"{key} and pad_token_id are 1; "):
        read(folder)


@pytest.mark.parametrize("padding", [VOCABULARY, 2**31, 2**70])
@pytest.mark.parametrize("name", ["m2m_100", "bart"])
def test_padding_is_a_token(name: str, padding: int, tmp_path: Path) -> None:
    """Behind a huge one, a table of positions as large would be made."""
    folder = write_family(tmp_path, BART_LIKE[name])
    edit_json(folder / "config.json", pad_token_id=padding)
    with pytest.raises(CheckpointError, match=f"pad_id {padding} is not below the vocabulary size {VOCABULARY}"):
        read(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"diversity_penalty": 0.5}, "diversity_penalty is 0.5, which is not supported"),
        ({"forced_bos_token_id": 151}, "token 151 is not one of 151 target tokens"),
        ({"forced_bos_token_id": 2}, "forced_bos_token_id is 2, the end token"),
        ({"eos_token_id": None}, "eos_token_id is missing or null, .* config.json says 2: write it here, too"),
    ],
)
def test_generation_is_refused(folder: Path, changes: dict[str, object], message: str) -> None:
    edit_json(folder / "generation_config.json", **changes)
    with pytest.raises(CheckpointError, match=message):
        read(folder)


@pytest.mark.parametrize("name", ["bart", "pegasus", "fsmt"])
def test_weights_may_lack_what_is_on_top(name: str, tmp_path: Path) -> None:
    """As a bare model saves them: a BartModel, whose names begin with no `model.`."""
    write_family(tmp_path, BART_LIKE[name])
    AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert not any(tensor.startswith("model.") for tensor in load_file(tmp_path / "model.safetensors"))
    assert_logits_are_those_of_transformers(tmp_path)


def test_weights_may_lack_positions_that_are_computed(tmp_path: Path) -> None:
    """As those of facebook/wmt19-en-de: no transformers before version 5 saved an FSMT's."""
    file = write_family(tmp_path, BART_LIKE["fsmt"]) / "model.safetensors"
    tensors = load_file(file)
    save_file({name: tensor for name, tensor in tensors.items() if "embed_positions" not in name}, file)
    assert len(load_file(file)) == len(tensors) - 2
    assert_logits_are_those_of_transformers(tmp_path)


def assert_logits_are_those_of_transformers(folder: Path) -> None:
    ours, theirs = read(folder).model, AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    sources, targets = (torch.randint(3, TARGETS, (2, length)) for length in (9, 7))
    with torch.no_grad():
        expected = theirs(input_ids=sources, decoder_input_ids=targets, use_cache=False).logits
        torch.testing.assert_close(ours(sources, torch.tensor([9, 9]), targets), expected, rtol=1e-4, atol=1e-4)


def test_start_token_is_named(folder: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        edit_json(folder / name, decoder_start_token_id=None)
    with pytest.raises(CheckpointError, match="decoder_start_token_id is missing"):
        read(folder)
