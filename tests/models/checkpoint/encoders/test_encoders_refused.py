"""models.checkpoint.encoders: what would give other hidden states is refused by name."""

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import ModernBertModel

from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.encoders import is_encoder, load
from tests.models.checkpoint.encoders.saved import Saved, modernbert, wordpiece, write


def test_a_norm_under_both_names_is_refused(saved: Saved) -> None:
    file = saved.folder / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"embeddings.LayerNorm.gamma": tensors["embeddings.LayerNorm.weight"] + 1}, file)
    with pytest.raises(CheckpointError, match="has a tensor under two names"):
        load(saved.folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"vocab_size": 200}, "has token 299; the model has 200 tokens"),
        ({"num_attention_heads": 5}, "width 36 is not a multiple of 5 heads"),
        ({"intermediate_size": 57}, "has shape [56, 36]; expected [57, 36]"),
        ({"num_hidden_layers": 2}, "has no tensor encoder.layer.2"),
        ({"num_hidden_layers": 4}, "tensor encoder.layer.3.attention.self.query.weight is missing"),
        ({"max_position_embeddings": 60}, "position_embeddings.weight has shape [50, 36]; expected [60, 36]"),
        ({"relative_attention_num_buckets": 16}, "relative_attention_num_buckets is 16"),
        ({"type_vocab_size": 1}, "token_type_embeddings.weight has shape [2, 36]; expected [1, 36]"),
    ],
)
def test_values_that_are_not_honoured_are_refused_by_name(changes: dict[str, object], told: str, saved: Saved) -> None:
    saved.config(**changes)
    with pytest.raises(CheckpointError) as caught:
        load(saved.folder)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"architectures": ["ModernBertForTokenClassification"]}, "'ModernBertForTokenClassification', whose head has"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 layers; num_hidden_layers is 5"),
        ({"layer_types": ["chunked_attention"] * 5}, "layer_types.0 is 'chunked_attention'"),
        ({"mlp_bias": True}, "attention_bias is False and mlp_bias True; expected the same"),
        ({"norm_bias": True}, "tensor embeddings.norm.bias is missing"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling is {'factor': 2.0}"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            "rope_parameters.full_attention.rope_type is 'yarn'",
        ),
        ({"num_attention_heads": 4}, "there are 0 decoder layers, and a head has 9"),
        ({"sliding_window": "all"}, "sliding_window is 'all'"),
        ({"rope_parameters": []}, "rope_parameters is []"),
        ({"layer_types": None, "global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0"),
    ],
)
def test_what_a_modernbert_has_besides_is_refused(changes: dict[str, object], told: str, tmp_path: Path) -> None:
    saved = write(tmp_path / "tiny", ModernBertModel(modernbert()))
    saved.config(**changes)
    with pytest.raises(CheckpointError) as caught:
        load(saved.folder)
    assert told in str(caught.value)


def test_a_folder_without_a_tokenizer_is_refused(saved: Saved) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (saved.folder / name).unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json, and no vocab\.txt of which BertTokenizer"):
        load(saved.folder)


def test_a_tokenizer_that_is_there_is_not_said_to_be_missing(saved: Saved) -> None:
    """transformers looks at config.json, too, before it opens one."""
    saved.config(hidden_dropout_prob="none")
    with pytest.raises(CheckpointError, match="reads no tokenizer there: Validation error for field 'hidden_dropout"):
        load(saved.folder)


def test_a_tokenizer_that_ends_no_text_is_refused(saved: Saved) -> None:
    tokenizer = wordpiece()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    tokenizer.save(str(saved.folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="no token ends a text"):
        load(saved.folder)


def test_damaged_weights_are_refused(saved: Saved) -> None:
    file = saved.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        load(saved.folder)


def test_who_wants_a_translation_model_is_told(saved: Saved) -> None:
    with pytest.raises(CheckpointError, match="'bert', an encoder alone, which does not translate"):
        load_checkpoint(saved.folder)


def test_a_family_that_is_not_known_is_named(saved: Saved) -> None:
    saved.config(model_type="electra")
    assert not is_encoder(saved.folder)
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean"})
    with pytest.raises(CheckpointError, match="model_type is 'electra'; supported: bert, roberta, xlm-roberta"):
        load(saved.folder)
