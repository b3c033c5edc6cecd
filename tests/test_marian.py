"""A Marian checkpoint loads as transformers loads it, and whatever is wrong with one is said by name."""

import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MarianMTModel

from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.reading import read_weights
from models.package import sha256
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


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint of one's own."""
    copy = tmp_path / "tiny"
    shutil.copytree(tiny_checkpoint, copy)
    return copy


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
    assert checkpoint.tokenizer.hidden_ids == (0, 32000)
    assert checkpoint.tokenizer.normalization["’"] == "'"
    assert all(weight.dtype == torch.float32 for weight in checkpoint.model.parameters())


def test_two_sentencepiece_models(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_checkpoint(tmp_path / "two", separate=True))
    assert checkpoint.files.keys() == {"source.spm", "target.spm", "vocab.json", "target_vocab.json"}
    assert checkpoint.tokenizer.target_model == "target.spm"


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
        ({"early_stopping": "never", "length_penalty": 2}, {"early_stopping": "never", "length_penalty": 2.0}),
        ({"bad_words_ids": [[211], [5], [0]]}, {"suppressed_ids": (5, 211)}),
        ({"forced_eos_token_id": 7}, {"forced_end_id": 7}),
        ({"do_sample": False, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0}, {"forced_end_id": None}),
    ],
)
def test_generation_defaults(folder: Path, settings: dict[str, object], expected: dict[str, object]) -> None:
    write_json(folder / "generation_config.json", settings)
    defaults = load_checkpoint(folder).generation.model_dump()
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


def change_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


def change_vocabulary(folder: Path, change: Callable[[dict[str, int]], object]) -> None:
    file = folder / "vocab.json"
    ids = json.loads(file.read_text())
    change(ids)
    write_json(file, ids)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def use_pickle(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)


class Malice:
    """Would create a file when unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


FC1 = "model.decoder.layers.1.fc1.weight"

BROKEN: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "no folder": (shutil.rmtree, ("tiny is not a folder", "config.json")),
    "no config": (lambda folder: (folder / "config.json").unlink(), ("tiny has no config.json",)),
    "config is not JSON": (
        lambda folder: (folder / "config.json").write_text("{"),
        ("config.json is not JSON", "line 1"),
    ),
    "config is a list": (lambda folder: write_json(folder / "config.json", [1]), ("config.json is not a JSON object",)),
    "another family": (
        lambda folder: edit_json(folder / "config.json", model_type="t5"),
        ("config.json: model_type is 't5'", "supported: marian"),
    ),
    "no family": (
        lambda folder: edit_json(folder / "config.json", model_type=None),
        ("config.json: model_type is None", "supported: marian"),
    ),
    "a key is missing": (
        lambda folder: edit_json(folder / "config.json", d_model=None),
        ("config.json: d_model is missing",),
    ),
    "a value of another type": (
        lambda folder: edit_json(folder / "config.json", d_model="48"),
        ("config.json: d_model is '48'", "integer"),
    ),
    "unknown activation": (
        lambda folder: edit_json(folder / "config.json", activation_function="gelu_new"),
        ("config.json: activation_function is 'gelu_new'", "'relu', 'gelu', 'swish' or 'silu'"),
    ),
    "pre-norm": (
        lambda folder: edit_json(folder / "config.json", normalize_before=True),
        ("config.json: normalize_before is True", "False"),
    ),
    "learned positions": (
        lambda folder: edit_json(folder / "config.json", static_position_embeddings=False),
        ("config.json: static_position_embeddings is False", "True"),
    ),
    "shared and untied": (
        lambda folder: edit_json(folder / "config.json", tie_word_embeddings=False),
        ("config.json: share_encoder_decoder_embeddings is true and tie_word_embeddings is false",),
    ),
    "heads do not divide": (
        lambda folder: edit_json(folder / "config.json", encoder_attention_heads=5),
        ("config.json", "width 48 is not a multiple of 5 heads"),
    ),
    "odd width": (lambda folder: edit_json(folder / "config.json", d_model=45), ("config.json: d_model is 45", "even")),
    "several end tokens": (
        lambda folder: edit_json(folder / "config.json", eos_token_id=[0, 1]),
        ("config.json: eos_token_id is [0, 1]", "integer"),
    ),
    "more layers in the configuration": (
        lambda folder: edit_json(folder / "config.json", decoder_layers=3),
        ("model.safetensors: tensor model.decoder.layers.2.", "is missing", "expected one of shape"),
    ),
    "fewer layers in the configuration": (
        lambda folder: edit_json(folder / "config.json", decoder_layers=1),
        ("model.safetensors", "its configuration describes has no tensor model.decoder.layers.1.", "and 25 more"),
    ),
    "another width in the configuration": (
        lambda folder: edit_json(folder / "config.json", d_model=24),
        ("model.safetensors: tensor model.shared.weight has shape [212, 48]; expected [212, 24]",),
    ),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        ("tiny has no weights", "model.safetensors or pytorch_model.bin"),
    ),
    "truncated weights": (lambda folder: truncate(folder / "model.safetensors"), ("model.safetensors is not a whole",)),
    "empty weights": (
        lambda folder: (folder / "model.safetensors").write_bytes(b""),
        ("model.safetensors is not a whole",),
    ),
    "a tensor is missing": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop(FC1)),
        (f"model.safetensors: tensor {FC1} is missing", "[80, 48]"),
    ),
    "a tensor too many": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.update(extra=torch.zeros(1))),
        ("model.safetensors", "no tensor extra"),
    ),
    "a tensor of another shape": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.update({FC1: torch.zeros(48, 80)})),
        (f"model.safetensors: tensor {FC1} has shape [48, 80]; expected [80, 48]",),
    ),
    "a tensor of integers": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.update({FC1: torch.zeros(80, 48).char()})),
        (f"model.safetensors: tensor {FC1} is torch.int8", "floating-point"),
    ),
    "a tied tensor that differs": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(212, 48)})),
        ("model.safetensors: lm_head.weight differs from model.shared.weight", "config.json"),
    ),
    "a pickle that is none": (
        lambda folder: use_pickle(folder, b"weights"),
        ("pytorch_model.bin is not a whole PyTorch weights file",),
    ),
    "a pickle with code": (
        lambda folder: use_pickle(folder, pickle.dumps(Malice(folder / "owned"), protocol=2)),
        ("pytorch_model.bin is not a whole PyTorch weights file",),
    ),
    "no tokenizer settings": (
        lambda folder: (folder / "tokenizer_config.json").unlink(),
        ("tokenizer_config.json cannot be read",),
    ),
    "no language": (
        lambda folder: edit_json(folder / "tokenizer_config.json", source_lang=None),
        ("tokenizer_config.json: source_lang is missing",),
    ),
    "a language that is none": (
        lambda folder: edit_json(folder / "tokenizer_config.json", target_lang="Portuguese, mostly"),
        ("tokenizer_config.json: target_lang is 'Portuguese, mostly'",),
    ),
    "no SentencePiece model": (lambda folder: (folder / "target.spm").unlink(), ("target.spm cannot be read",)),
    "truncated SentencePiece model": (lambda folder: truncate(folder / "source.spm"), ("source.spm is not a",)),
    "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), ("vocab.json cannot be read",)),
    "vocabulary is not JSON": (lambda folder: truncate(folder / "vocab.json"), ("vocab.json cannot be read",)),
    "no unknown token": (
        lambda folder: change_vocabulary(folder, lambda ids: ids.pop("<unk>")),
        ("vocab.json has no <unk>",),
    ),
    "an id too large": (
        lambda folder: change_vocabulary(folder, lambda ids: ids.update(x=900)),
        ("vocab.json: 'x' has id 900; the model has 212 tokens",),
    ),
    "an id twice": (
        lambda folder: change_vocabulary(folder, lambda ids: ids.update(xyzzy=9)),
        ("vocab.json: 213 pieces share 212 ids",),
    ),
    "another end token": (
        lambda folder: edit_json(folder / "config.json", eos_token_id=9),
        ("vocab.json: </s> has id 0", "config.json says eos_token_id is 9"),
    ),
    "generation is not JSON": (
        lambda folder: (folder / "generation_config.json").write_text("?"),
        ("generation_config.json is not JSON",),
    ),
    "bad words of two tokens": (
        lambda folder: edit_json(folder / "generation_config.json", bad_words_ids=[[3], [4, 5]]),
        ("generation_config.json: bad_words_ids has [4, 5]", "single token"),
    ),
    "too many bad words": (
        lambda folder: edit_json(folder / "generation_config.json", bad_words_ids=[[word] for word in range(2, 90)]),
        ("generation_config.json: bad_words_ids has 88 words; at most 32",),
    ),
    "a bad word that is no token": (
        lambda folder: edit_json(folder / "generation_config.json", bad_words_ids=[[212]]),
        ("generation_config.json: token 212 is not one of 212 target tokens",),
    ),
    "sampling": (
        lambda folder: edit_json(folder / "generation_config.json", do_sample=True),
        ("generation_config.json: do_sample is True", "expected False"),
    ),
    "blocked n-grams": (
        lambda folder: edit_json(folder / "generation_config.json", no_repeat_ngram_size=3),
        ("generation_config.json: no_repeat_ngram_size is 3", "expected 0"),
    ),
    "no beam": (
        lambda folder: edit_json(folder / "generation_config.json", num_beams=0),
        ("generation_config.json: num_beams is 0", "greater than 0"),
    ),
    "no room": (
        lambda folder: edit_json(folder / "generation_config.json", max_length=1),
        ("generation_config.json: max_new_tokens is 0", "greater than 0"),
    ),
    "a penalty that is no number": (
        lambda folder: edit_json(folder / "generation_config.json", length_penalty=float("nan")),
        ("generation_config.json: length_penalty is nan", "finite"),
    ),
}


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_checkpoint_says_why(folder: Path, change: Callable[[Path], object], said: tuple[str, ...]) -> None:
    change(folder)
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(folder)
    message = str(error.value)
    assert str(folder) in message
    assert "\n" not in message
    for part in said:
        assert part in message
    assert not (folder / "owned").exists()


@pytest.mark.parametrize("length", [0, 10, 1000, 100_000])
def test_a_pickle_cut_short(folder: Path, length: int) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "whole.bin")
    use_pickle(folder, (folder / "whole.bin").read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is not a whole PyTorch weights file"):
        load_checkpoint(folder)


@given(st.binary(max_size=40))
@example(b"\x80\x02].")
def test_a_pickle_of_noise(noise: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pytorch_model.bin"
        file.write_bytes(noise)
        with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
            read_weights(file).take("model.shared.weight", (1,))


def test_a_pickle_of_something_else(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save([1, 2], folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="holds no dictionary of tensors"):
        load_checkpoint(folder)


def test_both_sides_of_two_vocabularies_are_checked(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "two", separate=True)
    (folder / "target_vocab.json").unlink()
    with pytest.raises(CheckpointError, match=r"target_vocab\.json cannot be read"):
        load_checkpoint(folder)
