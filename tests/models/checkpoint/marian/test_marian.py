"""A Marian checkpoint loads as transformers loads it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MarianMTModel

from models.checkpoint import load_checkpoint
from models.package.folder import sha256
from tests.checkpoints import ZOO, edit_json, write_checkpoint, write_json

VARIANTS: dict[str, dict[str, Any]] = {
    "swish, scaled embeddings": {},
    "two vocabularies, untied output": {"separate": True},
    "gelu, one layer each, different heads": {
        "activation_function": "gelu",
        "scale_embedding": False,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 6,
    },
    "relu, deep encoder": {"activation_function": "relu", "encoder_layers": 5, "decoder_layers": 1},
    "silu, deep decoder, narrow": {
        "activation_function": "silu",
        "decoder_layers": 3,
        "d_model": 24,
        "encoder_attention_heads": 1,
        "decoder_attention_heads": 12,
    },
    "two vocabularies, tied output": {"separate": True, "tie_word_embeddings": True},
}


def random_batch(source_size: int, target_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Padded sources, their lengths, and targets."""
    torch.manual_seed(3)
    return torch.randint(0, source_size, (4, 13)), torch.tensor([13, 1, 7, 4]), torch.randint(0, target_size, (4, 11))


@torch.no_grad()
def logits_of_transformers(folder: Path, sources: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
    model = MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    mask = (torch.arange(sources.shape[1]) < lengths.unsqueeze(1)).long()
    logits: Tensor = model(input_ids=sources, attention_mask=mask, decoder_input_ids=targets).logits
    return logits


@torch.no_grad()
def assert_same_logits(folder: Path, tolerance: float = 1e-5) -> None:
    checkpoint = load_checkpoint(folder)
    batch = random_batch(checkpoint.config.source_vocab_size, checkpoint.config.target_vocab_size)
    torch.testing.assert_close(
        checkpoint.model(*batch), logits_of_transformers(folder, *batch), atol=tolerance, rtol=tolerance
    )


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_logits_are_those_of_transformers(tmp_path: Path, variant: dict[str, Any]) -> None:
    assert_same_logits(write_checkpoint(tmp_path / "random", **variant))


def test_logits_of_the_zoo_are_those_of_transformers() -> None:
    assert_same_logits(ZOO, tolerance=1e-4)


def test_what_a_checkpoint_says_of_itself() -> None:
    checkpoint = load_checkpoint(ZOO)
    assert checkpoint.name == "en-pt"
    assert (checkpoint.source_languages, checkpoint.target_languages) == (("en",), ("pt",))
    assert checkpoint.sha256 == sha256(ZOO / "model.safetensors")
    assert checkpoint.files.keys() == {"source.spm", "vocab.json", "LICENSE", "NOTICE"}
    assert checkpoint.sentencepiece.hidden_ids == (0, 32000)
    assert checkpoint.sentencepiece.normalization["’"] == "'"
    assert all(weight.dtype == torch.float32 for weight in checkpoint.model.parameters())


def test_two_sentencepiece_models(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_checkpoint(tmp_path / "two", separate=True))
    assert checkpoint.files.keys() == {"source.spm", "target.spm", "vocab.json", "target_vocab.json"}
    assert checkpoint.sentencepiece.target_model == "target.spm"


def test_licences_are_files(folder: Path) -> None:
    (folder / "LICENSES").mkdir()
    (folder / "LICENSE.txt").touch()
    assert load_checkpoint(folder).files.keys() == {"source.spm", "vocab.json", "LICENSE.txt"}


def test_half_precision_is_widened(folder: Path) -> None:
    MarianMTModel.from_pretrained(folder).half().save_pretrained(folder)
    assert load_file(folder / "model.safetensors")["model.shared.weight"].dtype == torch.float16
    assert_same_logits(folder)


def test_weights_in_a_pickle(folder: Path) -> None:
    """pytorch_model.bin, with the copies of tied tensors and the position tables that old ones have."""
    state = MarianMTModel.from_pretrained(folder).state_dict()
    assert {"lm_head.weight", "model.decoder.embed_tokens.weight", "model.encoder.embed_positions.weight"} <= set(state)
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert_same_logits(folder)


def test_position_tables_of_the_checkpoint_are_used(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_positions.weight"] = torch.randn(80, 48)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    assert_same_logits(folder)


def test_a_tied_tensor_under_another_name(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    expected = load_checkpoint(folder).model.target_embedding
    state["lm_head.weight"] = state.pop("model.shared.weight")
    save_file(state, folder / "model.safetensors")
    assert torch.equal(load_checkpoint(folder).model.target_embedding, expected)


def test_no_output_bias(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["final_logits_bias"]
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    assert_same_logits(folder)


def test_a_configuration_of_opus_mt(folder: Path) -> None:
    """As older versions of transformers wrote it: generation in config.json, and keys that mean nothing any more."""
    (folder / "generation_config.json").unlink()
    edit_json(
        folder / "config.json",
        _num_labels=3,
        add_bias_logits=False,
        add_final_layer_norm=False,
        bad_words_ids=[[211]],
        classif_dropout=0.0,
        extra_pos_embeddings=212,
        id2label={"0": "LABEL_0"},
        max_length=512,
        normalize_before=False,
        normalize_embedding=False,
        num_beams=6,
        num_hidden_layers=2,
        static_position_embeddings=True,
    )
    generation = load_checkpoint(folder).generation
    assert generation.num_beams == 6
    assert generation.max_new_tokens == 80  # positions; max_length says 511
    assert generation.suppressed_ids == (211,)
    assert generation.forced_end_id == 0
    assert_same_logits(folder)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"num_beams": 1, "max_new_tokens": 80, "length_penalty": 1.0, "early_stopping": False}),
        ({"max_length": 41}, {"max_new_tokens": 40}),
        ({"max_length": 41, "max_new_tokens": 30}, {"max_new_tokens": 30}),
        ({"max_length": 512}, {"max_new_tokens": 80}),
        ({"num_beams": 4, "length_penalty": 0.6, "early_stopping": True}, {"num_beams": 4, "length_penalty": 0.6}),
        ({"num_beams": 3, "num_return_sequences": 2}, {"num_beams": 3, "num_return_sequences": 2}),
        ({"early_stopping": "never", "length_penalty": 2}, {"early_stopping": "never", "length_penalty": 2.0}),
        ({"bad_words_ids": [[211], [5], [0]]}, {"suppressed_ids": (5, 211)}),
        ({"forced_eos_token_id": 7}, {"forced_end_id": 7}),
        ({"do_sample": False, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0}, {"forced_end_id": None}),
    ],
)
def test_generation_defaults(folder: Path, settings: dict[str, object], expected: dict[str, object]) -> None:
    write_json(folder / "generation_config.json", {"eos_token_id": 0} | settings)
    defaults = asdict(load_checkpoint(folder).generation)
    assert {key: defaults[key] for key in expected} == expected


def test_the_decoder_starts_as_generation_says(folder: Path) -> None:
    edit_json(folder / "generation_config.json", decoder_start_token_id=5)
    assert load_checkpoint(folder).config.decoder_start_id == 5


@torch.no_grad()
def test_renormalised_logits(folder: Path) -> None:
    """`renormalize_logits`: the other tokens share the probability of the suppressed ones."""
    edit_json(folder / "generation_config.json", renormalize_logits=True, bad_words_ids=[[211], [30]])
    batch = random_batch(212, 212)
    expected = logits_of_transformers(folder, *batch)
    expected[:, :, [30, 211]] = -torch.inf
    found = load_checkpoint(folder).model(*batch).softmax(dim=2)
    torch.testing.assert_close(found, expected.softmax(dim=2), atol=1e-6, rtol=1e-5)
