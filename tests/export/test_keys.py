"""Every key that transformers knows has its place here: honoured, held to one value, or without any effect.

The oracles are transformers' own classes: what they know, and that nothing comes of what is said to have no effect.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, GenerationConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from export.unread import MODEL_TYPES, OF_GENERATION, known_keys, own_keys, unread_keys
from models.checkpoint import CheckpointError
from models.checkpoint.bart_like import read
from models.checkpoint.files.keys import OF_GENERATE, UNUSED
from tests.checkpoints import edit_json
from tests.models.families import BART_LIKE, write_family

SMALL: dict[str, Any] = {
    **dict.fromkeys(("d_model", "hidden_size", "dim", "n_embd"), 24),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers", "n_layers", "n_layer"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_attention_heads", "num_heads"), 2),
    **dict.fromkeys(("n_heads", "n_head"), 2),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "intermediate_size", "d_ff", "hidden_dim"), 32),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 40),
    **dict.fromkeys(("vocab_size", "src_vocab_size", "tgt_vocab_size", "decoder_vocab_size"), 60),
    "num_hidden_layers": 2,
    "d_kv": 8,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "bos_token_id": 0,
    "decoder_start_token_id": 3,
}
FORM = {"return_dict", "output_hidden_states", "output_attentions", "model_type", "architectures", "auto_map"}
"""These change what a call returns, or which class is asked."""


def config_of(model_type: str, **changes: Any) -> Any:
    made = CONFIG_MAPPING[model_type]
    names = {field.name for field in dataclasses.fields(made)} | set(made().to_dict())
    return made(**{key: value for key, value in SMALL.items() if key in names} | changes)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_key_of_a_family_has_its_place(model_type: str) -> None:
    made = CONFIG_MAPPING[model_type]
    keys = {*made().to_dict(), *(field.name for field in dataclasses.fields(made)), *made.attribute_map}
    assert keys - known_keys(model_type) == set()


def test_every_key_of_generation_has_its_place() -> None:
    assert vars(GenerationConfig()).keys() - OF_GENERATION == set()


def other(value: Any) -> Any:
    """A value that is not this one."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value + 0.25
        case _:
            return value


def logits(model: PreTrainedModel) -> torch.Tensor:
    ids = torch.randint(4, 60, (2, 9), generator=torch.Generator().manual_seed(3))
    decoder = {"decoder_input_ids": ids[:, :5]} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids), **decoder)[0]
    return found


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_nothing_comes_of_unused_keys(model_type: str) -> None:
    torch.manual_seed(5)
    config = config_of(model_type)
    model = AutoModel.from_config(config).eval()
    known = config.to_dict()
    unused = (known_keys(model_type) & UNUSED & known.keys()) - FORM - own_keys(model_type)
    changes = {key: other(known[key]) for key in unused if other(known[key]) != known[key]}
    assert len(changes) >= 3
    changed = AutoModel.from_config(config_of(model_type, **changes)).eval()
    changed.load_state_dict(model.state_dict())
    torch.testing.assert_close(logits(changed), logits(model), rtol=1e-5, atol=1e-5)


def test_nothing_comes_of_unused_keys_of_generation() -> None:
    """Where none of them needs another model."""
    torch.manual_seed(5)
    model = AutoModelForSeq2SeqLM.from_config(config_of("bart")).eval()
    ids = torch.randint(4, 60, (2, 9))
    expected = model.generate(ids, num_beams=3, max_new_tokens=12, do_sample=False)
    given: dict[str, Any] = {
        "num_assistant_tokens": 3,
        "assistant_confidence_threshold": 0.1,
        "remove_invalid_values": True,
    }
    given |= {"use_cache": False, "pad_token_id": 7, "bos_token_id": 9}
    given |= {"max_matching_ngram_size": 2, "speculation_type": "none", "assistant_ensemble_weight": 0.5}
    given |= {"target_lookbehind": 3, "assistant_lookbehind": 4, "num_assistant_tokens_schedule": "heuristic"}
    assert given.keys() <= OF_GENERATE
    found = model.generate(ids, num_beams=3, max_new_tokens=12, do_sample=False, **given)
    ends = [row.tolist().index(2, 1) if 2 in row[1:] else len(row) for row in expected]
    for row, theirs, end in zip(found, expected, ends, strict=True):
        assert row[: end + 1].tolist() == theirs[: end + 1].tolist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_family(tmp_path, BART_LIKE["bart, as for summaries"])


def test_keys_that_nobody_reads_are_told(folder: Path) -> None:
    assert unread_keys(folder) == {}
    edit_json(folder / "config.json", extra_pos_embeddings=2, save_step=7, length_penalty=2.0, static=1)
    edit_json(folder / "generation_config.json", speed="high")
    assert unread_keys(folder) == {
        "config.json": ["extra_pos_embeddings", "static"],
        "generation_config.json": ["speed"],
    }
    read(folder)


OLD: dict[str, Any] = {
    "_num_labels": 3,
    "add_bias_logits": False,
    "classif_dropout": 0.1,
    "gradient_checkpointing": False,
}
OLD |= {"extra_pos_embeddings": 2, "save_step": 58, "output_past": True, "prefix": " ", "torch_dtype": "float16"}
OLD |= {"id2label": {"0": "LABEL_0"}, "task_specific_params": {"summarization": {"length_penalty": 2.0}}}
OLD |= {"xla_device": True, "adapters": {}, "num_hidden_layers": 2, "scale_embedding": False, "min_length": 5}
HUB: dict[str, dict[str, Any]] = {
    "bart": OLD | {"normalize_before": False, "normalize_embedding": True, "static_position_embeddings": False},
    "pegasus": OLD | {"normalize_before": True, "add_final_layer_norm": True, "static_position_embeddings": True},
    "blenderbot": OLD | {"normalize_before": True, "normalize_embedding": False, "length_penalty": 0.65},
}


@pytest.mark.parametrize("family", HUB)
def test_keys_of_the_hubs_files_are_no_hindrance(family: str, tmp_path: Path) -> None:
    """As bart-large-cnn, pegasus-xsum and blenderbot-400M-distill have them."""
    folder = write_family(tmp_path, BART_LIKE[family])
    edit_json(folder / "config.json", **HUB[family])
    read(folder)
    assert unread_keys(folder) == {"config.json": ["extra_pos_embeddings"]}


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_time", 2.5), ("penalty_alpha", 0.6), ("use_mtp", True), ("guidance_scale", 1.5), ("stop_strings", ["a"])],
)
def test_what_generate_would_do_is_refused_by_key_and_value(key: str, value: object, folder: Path) -> None:
    edit_json(folder / "generation_config.json", **{key: value})
    with pytest.raises(CheckpointError, match=f"{key} is .*{value!r}".replace("[", r"\[")) as refused:
        read(folder)
    assert str(refused.value).endswith("take it out of the file") and "\n" not in str(refused.value)


def test_two_names_of_a_key_say_the_same(folder: Path) -> None:
    """In transformers the second name decides, whatever the first says."""
    edit_json(folder / "config.json", num_hidden_layers=2)
    read(folder)
    edit_json(folder / "config.json", num_hidden_layers=3)
    assert AutoConfig.from_pretrained(folder).encoder_layers == 3
    with pytest.raises(CheckpointError, match="num_hidden_layers is 3 and encoder_layers 2; to transformers they are"):
        read(folder)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            "sequence_bias",
            [[[5], 2.0], [[7, 5000], 1.0]],
            r"sequence_bias\[1\]: a token id is 5000; it must be from 0 to",
        ),
        ("bad_words_ids", [[7, -1]], r"a token id is -1; it must be from 0 to \d+, in bad_words_ids"),
        (
            "sequence_bias",
            [[[5], float("inf")]],
            r"sequence_bias\[0\]: the bias is inf; it must be from -10000.0 to 10000.0",
        ),
    ],
)
def test_phrases_that_a_request_could_not_name_are_refused(key: str, value: object, told: str, folder: Path) -> None:
    edit_json(folder / "generation_config.json", **{key: value})
    with pytest.raises(CheckpointError, match=told):
        read(folder)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"do_sample": True, "num_beams": 4}, "do_sample is true and num_beams 4"),
        (
            {"num_return_sequences": 3, "num_beams": 2},
            "num_return_sequences is 3; it must be from 1 to 2, which is num_beams",
        ),
        (
            {"min_length": 21, "max_length": 11},
            "min_new_tokens is 20; it must be from 0 to 10, which is max_new_tokens, in .* min_length",
        ),
        (
            {"renormalize_logits": True, "min_length": 0, "repetition_penalty": 1.3},
            "is true, .* repetition_penalty is 1.3",
        ),
        ({"renormalize_logits": True, "min_new_tokens": 2}, "renormalize_logits is true, .* min_new_tokens .* is 2"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], told: str, folder: Path) -> None:
    edit_json(folder / "generation_config.json", **settings)
    with pytest.raises(CheckpointError, match=told):
        read(folder)


def test_settings_that_go_together_are_read(folder: Path) -> None:
    file = folder / "generation_config.json"
    together = {"do_sample": True, "num_return_sequences": 3, "max_length": 11, "min_length": 0, "num_beams": 1}
    edit_json(file, **together, renormalize_logits=True, bad_words_ids=[[7]])
    generation = read(folder).generation
    assert generation.num_return_sequences == 3 and generation.suppressed_ids == (7,)
