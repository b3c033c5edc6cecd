"""Whatever is wrong with a Marian checkpoint is said by name."""

import json
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.files.weights import read_weights
from tests.checkpoints import edit_json, write_checkpoint, write_json
from tests.models.checkpoint.refusal import refusal


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


def end_with(folder: Path, token: int) -> None:
    """Another end token, as the model and as its generation say."""
    for name in ("config.json", "generation_config.json"):
        edit_json(folder / name, eos_token_id=token)


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
        lambda folder: edit_json(folder / "config.json", model_type="xglm"),
        ("config.json: model_type is 'xglm'", "supported: bart, "),
    ),
    "no family": (
        lambda folder: edit_json(folder / "config.json", model_type=None),
        ("config.json: model_type is None", "supported: bart, "),
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
    "no layers": (
        lambda folder: edit_json(folder / "config.json", decoder_layers=0),
        ("config.json: decoder_layers is 0", "greater than 0"),
    ),
    "no width": (
        lambda folder: edit_json(folder / "config.json", d_model=0),
        ("config.json: d_model is 0", "greater than 0"),
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
        lambda folder: end_with(folder, 9),
        ("vocab.json: </s> has id 0", "config.json says eos_token_id is 9"),
    ),
    "generation is not JSON": (
        lambda folder: (folder / "generation_config.json").write_text("?"),
        ("generation_config.json is not JSON",),
    ),
    "a decay that is no pair": (
        lambda folder: edit_json(folder / "generation_config.json", exponential_decay_length_penalty=1.5),
        ("generation_config.json: an option is not as `generate` writes it",),
    ),
    "too many bad words": (
        lambda folder: edit_json(folder / "generation_config.json", bad_words_ids=[[word] for word in range(2, 90)]),
        ("generation_config.json: bad_words_ids has 88 words of one token; at most 32",),
    ),
    "a bad word that is no token": (
        lambda folder: edit_json(folder / "generation_config.json", bad_words_ids=[[212]]),
        ("generation_config.json: token 212 is not one of 212 target tokens",),
    ),
    "sampling": (
        lambda folder: edit_json(folder / "generation_config.json", temperature=0.0),
        ("generation_config.json: temperature is 0.0", "greater than or equal to 0.01"),
    ),
    "another end": (
        lambda folder: edit_json(folder / "generation_config.json", eos_token_id=5),
        ("generation_config.json: eos_token_id is 5", "config.json says 0"),
    ),
    "two ends": (
        lambda folder: edit_json(folder / "generation_config.json", eos_token_id=[0, 5]),
        ("generation_config.json: eos_token_id is [0, 5]", "config.json says 0"),
    ),
    "layers that are compared": (
        lambda folder: edit_json(folder / "generation_config.json", dola_layers="high"),
        ("generation_config.json: dola_layers is 'high'", "expected None"),
    ),
    "groups of beams": (
        lambda folder: edit_json(folder / "generation_config.json", num_beam_groups=2),
        ("generation_config.json: num_beam_groups is 2", "expected 1"),
    ),
    "no beam": (
        lambda folder: edit_json(folder / "generation_config.json", num_beams=0),
        ("generation_config.json: num_beams is 0", "greater than or equal to 1"),
    ),
    "no room": (
        lambda folder: edit_json(folder / "generation_config.json", max_length=1),
        ("generation_config.json: max_new_tokens is 0", "greater than or equal to 1"),
    ),
    "a penalty that is no number": (
        lambda folder: edit_json(folder / "generation_config.json", length_penalty=float("nan")),
        ("generation_config.json: length_penalty is nan", "finite"),
    ),
    "length penalty no request may ask for": (
        lambda folder: edit_json(folder / "generation_config.json", length_penalty=11.0),
        ("generation_config.json: length_penalty is 11.0", "less than or equal to 10"),
    ),
    "beams are no number": (
        lambda folder: edit_json(folder / "generation_config.json", num_beams="4"),
        ("generation_config.json: num_beams is '4'", "valid integer"),
    ),
}


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_checkpoint_says_why(folder: Path, change: Callable[[Path], object], said: tuple[str, ...]) -> None:
    change(folder)
    message = refusal(folder)
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


def test_two_vocabularies_have_no_tokens_in_common(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "two", separate=True)
    edit_json(folder / "generation_config.json", encoder_no_repeat_ngram_size=3)
    with pytest.raises(CheckpointError, match=r"encoder_repetition_penalty is 1\.0 and encoder_no_repeat_ngram_size 3"):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["source.spm", "target.spm"])
@pytest.mark.parametrize(
    ("rule", "field"), [("encode_case", b"\x1a\x02\x38\x01"), ("decode_case", b"\x2a\x02\x40\x01")]
)
def test_case_that_marian_alone_writes_as_pieces_is_refused(name: str, rule: str, field: bytes, folder: Path) -> None:
    """SentencePiece opens such a model and passes the rule over: capitals would be unknown. 1: on; 0: off."""
    model = (folder / name).read_bytes()
    (folder / name).write_bytes(model + field)
    with pytest.raises(CheckpointError, match=f"{name} has {rule} of Marian's own SentencePiece"):
        load_checkpoint(folder)
    (folder / name).write_bytes(model + field[:-1] + b"\0")
    load_checkpoint(folder)
