"""What the writer wrote, the reader reads, and so does transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MarianMTModel, MarianTokenizer

from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.marian_writer import marian_config, write_marian
from tests.checkpoints import ZOO, write_checkpoint
from tests.models.test_transformer import config

VARIANTS: list[dict[str, Any]] = [
    {},
    {"separate": True},
    {"separate": True, "tie_word_embeddings": False},
    {"activation_function": "swish", "encoder_layers": 3, "scale_embedding": False},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_checkpoint_survives(variant: dict[str, Any], tmp_path: Path) -> None:
    original = load_checkpoint(write_checkpoint(tmp_path / "original", **variant))
    write_marian(tmp_path / "copy", original.transformer, tmp_path / "original")
    copy = load_checkpoint(tmp_path / "copy")
    assert (copy.config, copy.tokenizer) == (original.config, original.tokenizer)
    assert (copy.source_languages, copy.target_languages) == (("en",), ("pt",))
    found = copy.model.state_dict()
    for name, tensor in original.transformer.state_dict().items():
        expected = tensor if name.endswith("_positions") else tensor.half().float()
        assert torch.equal(found[name], expected), name


def test_the_zoo_survives_to_the_bit(tmp_path: Path) -> None:
    """Its weights are fp16 already."""
    original = load_checkpoint(ZOO)
    write_marian(tmp_path / "copy", original.transformer, ZOO)
    found = load_checkpoint(tmp_path / "copy").model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in original.transformer.state_dict().items())
    assert (tmp_path / "copy" / "NOTICE").read_bytes() == (ZOO / "NOTICE").read_bytes()


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses.")
def test_transformers_reads_it(tmp_path: Path) -> None:
    original = load_checkpoint(write_checkpoint(tmp_path / "original"))
    write_marian(tmp_path / "copy", original.transformer, tmp_path / "original")
    theirs = MarianMTModel.from_pretrained(tmp_path / "copy", dtype=torch.float32, local_files_only=True).eval()
    ours = load_checkpoint(tmp_path / "copy").model
    source, target = torch.tensor([[5, 9, 30, 0]]), torch.tensor([[211, 17, 40]])
    with torch.no_grad():
        expected = theirs(input_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, torch.tensor([4]), target), expected, rtol=0, atol=1e-4)
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "copy", local_files_only=True)
    assert tokenizer("The weather").input_ids[-1] == theirs.config.eos_token_id == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "pre"}, "norm is 'pre'; a Hugging Face Marian model always has 'post'"),
        ({"positions": "learned"}, "positions is 'learned'; a Hugging Face Marian model always has 'sinusoidal'"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon is 1e-06; a Hugging Face Marian model always has 1e-05"),
    ],
)
def test_what_it_cannot_hold_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        marian_config(config(**changes))
    assert str(refused.value) == message


def test_weights_that_diverged_are_refused(tmp_path: Path) -> None:
    model = load_checkpoint(write_checkpoint(tmp_path / "original")).transformer
    with torch.no_grad():
        model.get_parameter("decoder.0.cross.out.weight")[0, 0] = 1e6
    with pytest.raises(CheckpointError, match=r"encoder_attn\.out_proj\.weight has values that are no finite numbers"):
        write_marian(tmp_path / "copy", model, tmp_path / "original")
