"""An encoder alone of bare weights: torch.nn.TransformerEncoder, and what its own code makes of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from dragoman.client import Client
from export.__main__ import main
from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.encoders import is_encoder, load
from models.package.folder import Package
from tests.models.checkpoint.encoders.saved import PIECES, wordpiece
from tests.server_process import server_process

WIDTH, LAYERS, HEADS, INNER, POSITIONS = 64, 2, 4, 72, 40
TEXTS = "The red house is old.", "Where is the station?", "Yes."
MODEL: dict[str, object] = {
    "source_vocab_size": PIECES,
    "width": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": 0,
    "encoder_heads": HEADS,
    "encoder_ffn": INNER,
    "max_positions": POSITIONS,
    "positions": '"learned"',
    "activation": '"gelu"',
    "pad_id": 0,
    "end_id": 3,
}
TENSORS = """
source_embedding = "tokens.weight"
source_positions = "places.weight"
"encoder.{layer}.attention.qkv.weight" = "stack.layers.{layer}.self_attn.in_proj_weight"
"encoder.{layer}.attention.qkv.bias" = "stack.layers.{layer}.self_attn.in_proj_bias"
"encoder.{layer}.attention.out" = "stack.layers.{layer}.self_attn.out_proj"
"encoder.{layer}.attention.residual.norm" = "stack.layers.{layer}.norm1"
"encoder.{layer}.feed_forward.up" = "stack.layers.{layer}.linear1"
"encoder.{layer}.feed_forward.down" = "stack.layers.{layer}.linear2"
"encoder.{layer}.feed_forward.residual.norm" = "stack.layers.{layer}.norm2"
"""
WORDS = 'kind = "tokenizers"\nfile = "words.json"'


class Theirs(nn.Module):
    """Somebody's own, of PyTorch's parts."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(PIECES, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, activation="gelu", batch_first=True)
        self.stack = nn.TransformerEncoder(layer, LAYERS)
        self.score = nn.Linear(WIDTH, 1)

    @torch.no_grad()
    def vector(self, ids: Sequence[int]) -> Tensor:
        """The mean of the last states, weighted by what each one scores."""
        tokens = torch.tensor([ids])
        hidden: Tensor = self.stack(self.tokens(tokens) + self.places(torch.arange(len(ids))))[0]
        scores: Tensor = self.score(hidden)
        return (scores.softmax(0) * hidden).sum(0)


@dataclass(frozen=True)
class Bare:
    """Its weights, and a checkpoint.toml that may say something else."""

    folder: Path
    model: Theirs = field(default_factory=Theirs)

    def write(
        self, model: Mapping[str, object] = MODEL, more: str = "", encoding: str = "", tokenizer: str = WORDS
    ) -> None:
        """more: lines of the whole; encoding: of how vectors are made."""
        self.folder.mkdir()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        torch.save(self.model.state_dict(), self.folder / "weights.pt")
        wordpiece().save(str(self.folder / "words.json"))
        fields = "".join(f"{key} = {value}\n" for key, value in model.items())
        (self.folder / "checkpoint.toml").write_text(
            f'weights = "weights.pt"\n{more}\n[tokenizer]\n{tokenizer}\n[model]\n{fields}'
            f'[encoding]\npoolings = ["attention"]\nscores = "score"\n{encoding}\n[tensors]{TENSORS}'
        )


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    torch.manual_seed(3)
    return Bare(tmp_path / "bare")


@pytest.mark.timeout(300)
def test_served_vectors_are_those_of_its_own_code(bare: Bare, tmp_path: Path) -> None:
    bare.write(more='source_languages = ["en"]', encoding="max_tokens = 20")
    assert is_encoder(bare.folder)
    out, samples = tmp_path / "package", tmp_path / "samples.txt"
    samples.write_text("\n".join(TEXTS))
    told = "--out", str(out), "--samples", str(samples), "--verify-samples", str(len(TEXTS)), "--quiet"
    assert main([str(bare.folder), *told]) == 0
    manifest = Package.open(out).manifest
    assert manifest.certificate is not None and manifest.certificate.vectors is not None
    assert manifest.certificate.vectors.reference == "pytorch"
    assert (manifest.source_languages, manifest.encoding.max_tokens) == (("en",), 20)
    tokenizer, model = Tokenizer.from_file(str(bare.folder / "words.json")), bare.model.eval()
    expected = [model.vector(tokenizer.encode(text).ids).numpy() for text in TEXTS]
    with server_process(out) as server, Client(server.target) as client:
        vectors = [embedding.values for embedding in client.encode(list(TEXTS))]
    np.testing.assert_allclose(vectors, np.stack(expected), atol=2e-5)


TARGET_SIDE = {"target_vocab_size": 300, "decoder_layers": 1, "decoder_heads": 4, "decoder_ffn": 8}
TARGET_SIDE |= {"decoder_start_id": 2}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"more": 'target_languages = ["pt"]'}, "target_languages is of models that translate; decoder_layers is 0"),
        ({"encoding": "max_tokens = 41"}, "max_tokens is 41; the model has 40 positions"),
        ({"encoding": 'prompt = "query"'}, "prompt is 'query'; there are none"),
        ({"tokenizer": 'kind = "bytes"'}, "tokenizer.kind is 'bytes'; an encoder alone takes 'tokenizers'"),
        ({"tokenizer": 'kind = "tokenizers"\nfile = "none.json"'}, "none.json"),
        ({"model": MODEL | {"end_id": 2}}, "end_id is 2; words.json ends a text with token 3"),
        ({"model": MODEL | {"source_vocab_size": 200}}, "words.json has token 299; the model has 200 tokens"),
        ({"model": MODEL | TARGET_SIDE}, "decoder_layers is 1; an encoder alone has none"),
        ({"model": MODEL | {"encoder_layers": 3}}, "stack.layers.2.self_attn.in_proj_weight is missing"),
        ({"model": MODEL | {"encoder_layers": 1}}, "stack.layers.1."),
    ],
)
def test_what_does_not_fit_is_refused(bare: Bare, changes: dict[str, Any], told: str) -> None:
    bare.write(**changes)
    with pytest.raises(CheckpointError) as raised:
        load(bare.folder)
    assert told in str(raised.value)


def test_it_is_no_translation_model(bare: Bare) -> None:
    bare.write()
    with pytest.raises(CheckpointError, match="decoder_layers is 0, an encoder alone, which does not translate"):
        load_checkpoint(bare.folder)
