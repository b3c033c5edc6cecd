"""models.checkpoint.encoders: hidden states are those of transformers."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertForMaskedLM, ModernBertModel

from models.checkpoint.encoders import is_encoder, load
from models.encoding import Pooling
from tests.models.checkpoint.encoders.saved import FAMILIES, PIECES, WIDTH, Saved, bert, modernbert, write


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_hidden_states_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    saved = write(tmp_path / "tiny", FAMILIES[family]())
    assert is_encoder(saved.folder)
    checkpoint = load(saved.folder)
    theirs = AutoModel.from_pretrained(saved.folder).eval()
    assert checkpoint.config.max_positions in (44, 48, 50)
    for length in (1, 7, checkpoint.config.max_positions):
        ids = torch.randint(4, PIECES, (2, length))
        expected = theirs(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        found = checkpoint.model.encode(ids, torch.tensor([length, length]))
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@torch.no_grad()
def test_norms_of_old_have_other_names(tmp_path: Path) -> None:
    """As in bert-base-uncased's own file, whose config.json of before says nothing of padding."""
    saved = write(tmp_path / "tiny", BertForMaskedLM(bert()))
    states = load(saved.folder).model.state_dict()
    file, old = saved.folder / "model.safetensors", {"LayerNorm.weight": "LayerNorm.gamma", "Norm.bias": "Norm.beta"}
    tensors = load_file(file)
    for new, name in old.items():
        tensors = {key.replace(new, name): tensor for key, tensor in tensors.items()}
    assert sum(key.endswith(("LayerNorm.gamma", "LayerNorm.beta")) for key in tensors) == 2 * (2 * 3 + 2)
    save_file(tensors, file, {"format": "pt"})
    saved.config(pad_token_id=None)
    found = load(saved.folder)
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, states[name]), name
    ids = torch.randint(4, PIECES, (1, 9))
    expected = AutoModel.from_pretrained(saved.folder).eval()(ids).last_hidden_state
    torch.testing.assert_close(found.model.encode(ids, torch.tensor([9])), expected, atol=2e-5, rtol=0)


def test_a_plain_folder_has_the_mean_and_its_tokenizers_own_template(saved: Saved) -> None:
    checkpoint = load(saved.folder)
    assert checkpoint.encoding.poolings == (Pooling.MEAN,) and not checkpoint.encoding.normalize
    assert (checkpoint.tokenizer.affixes.prefix_ids, checkpoint.tokenizer.affixes.suffix_ids) == ((2,), (3,))
    assert (checkpoint.config.end_id, checkpoint.config.pad_id, checkpoint.config.decoder_layers) == (3, 0, 0)


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("distilbert", {"layer_norm_eps": 0.5}),
        ("distilbert", {"hidden_act": "relu", "intermediate_size": 7}),
        ("distilbert", {"hidden_size": WIDTH, "dim": None}),
        ("modernbert", {"sliding_window": 1}),
    ],
)
def test_names_of_keys_are_those_that_transformers_knows(
    family: str, changes: dict[str, object], tmp_path: Path
) -> None:
    saved = write(tmp_path / "tiny", FAMILIES[family]())
    saved.config(**changes)
    ids = torch.randint(4, PIECES, (1, 17))
    with torch.no_grad():
        found = load(saved.folder).model.encode(ids, torch.tensor([17]))
        expected = AutoModel.from_pretrained(saved.folder)(ids).last_hidden_state
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


def test_a_modernbert_of_old_is_the_same(tmp_path: Path) -> None:
    """Its config.json says by older keys which layers are which, and sentence-transformers asks for longer texts."""
    saved = write(tmp_path / "tiny", ModernBertModel(modernbert()))
    found = load(saved.folder).config
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    saved.config(layer_types=None, rope_parameters=None, **old)
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean"}, sentence_bert_config={"max_seq_length": 8192})
    again = load(saved.folder)
    assert again.config == found and found.rotary is not None and found.rotary.local_layers == (1, 2, 4)
    assert again.encoding.max_tokens == 50
