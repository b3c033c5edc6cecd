"""Bare weights and a checkpoint.toml: the references are torch.nn's own encoder and decoder."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.described.writer import write_described
from models.encoding import Encoding, Pooling
from models.tokenizers.sentencepiece_pair import SentencePieceSpec
from tests.checkpoints import write_checkpoint

VOCABULARY, WIDTH, HEADS, FFN, LONGEST = 263, 24, 3, 40, 33
LAYERS = {"encoder": 2, "decoder": 3}
MODEL = f"""
[model]
source_vocab_size = {VOCABULARY}
target_vocab_size = {VOCABULARY}
width = {WIDTH}
encoder_layers = {LAYERS["encoder"]}
decoder_layers = {LAYERS["decoder"]}
encoder_heads = {HEADS}
decoder_heads = {HEADS}
encoder_ffn = {FFN}
decoder_ffn = {FFN}
max_positions = {LONGEST}
activation = "gelu"
positions = "learned"
tie_output = false
output_bias = false
last_norm = true
norm = "NORM"
pad_id = 0
end_id = 1
decoder_start_id = 0
"""
HEAD = """
weights = "model.pt"
entry = "state_dict"
ignored = ["criterion."]
source_languages = ["en"]
target_languages = ["pt"]
tokenizer = { kind = "bytes" }
"""
ENCODING = """
[encoding]
poolings = ["attention", "max"]
scores = "attention"
normalize = true
"""
TENSORS = (
    ENCODING
    + """
[tensors]
source_embedding = "embedding.weight"
source_positions = "positions.pe"
target_positions = "target_positions.pe"
output_weight = "generator.weight"
encoder_norm = "stacks.encoder.norm"
decoder_norm = "stacks.decoder.norm"
"cross_kv.weight" = [
  "stacks.decoder.layers.{layer}.multihead_attn.in_proj_weight[2/3]",
  "stacks.decoder.layers.{layer}.multihead_attn.in_proj_weight[3/3]",
]
"cross_kv.bias" = [
  "stacks.decoder.layers.{layer}.multihead_attn.in_proj_bias[2/3]",
  "stacks.decoder.layers.{layer}.multihead_attn.in_proj_bias[3/3]",
]
"decoder.{layer}.cross.query.weight" = "stacks.decoder.layers.{layer}.multihead_attn.in_proj_weight[1/3]"
"decoder.{layer}.cross.query.bias" = "stacks.decoder.layers.{layer}.multihead_attn.in_proj_bias[1/3]"
"decoder.{layer}.cross.out" = "stacks.decoder.layers.{layer}.multihead_attn.out_proj"
"decoder.{layer}.cross.residual.norm" = "stacks.decoder.layers.{layer}.norm2"
"""
    + "\n".join(
        f"""
"{side}.{{layer}}.attention.qkv.weight" = "stacks.{side}.layers.{{layer}}.self_attn.in_proj_weight"
"{side}.{{layer}}.attention.qkv.bias" = "stacks.{side}.layers.{{layer}}.self_attn.in_proj_bias"
"{side}.{{layer}}.attention.out" = "stacks.{side}.layers.{{layer}}.self_attn.out_proj"
"{side}.{{layer}}.attention.residual.norm" = "stacks.{side}.layers.{{layer}}.norm1"
"{side}.{{layer}}.feed_forward.up" = "stacks.{side}.layers.{{layer}}.linear1"
"{side}.{{layer}}.feed_forward.down" = "stacks.{side}.layers.{{layer}}.linear2"
"{side}.{{layer}}.feed_forward.residual.norm" = "stacks.{side}.layers.{{layer}}.norm{last}"
"""
        for side, last in (("encoder", 2), ("decoder", 3))
    )
)


class Positions(nn.Module):
    """A buffer with an axis of batches, as in PyTorch's tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.pe: Tensor
        self.register_buffer("pe", torch.randn(1, LONGEST, WIDTH) * 0.3)


class Stacks(nn.Module):
    """What nn.Transformer has. Its own encoder has a fast way besides, and warns of where that is not taken."""

    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        settings: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": norm_first}
        encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, FFN, **settings)
        decoder = nn.TransformerDecoderLayer(WIDTH, HEADS, FFN, **settings)
        norms = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.encoder = nn.TransformerEncoder(encoder, LAYERS["encoder"], norms[0], enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, LAYERS["decoder"], norms[1])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Hidden states [sentences, target, width]."""
        causal = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
        hidden: Tensor = self.decoder(y, self.encoder(x), tgt_mask=causal)
        return hidden


class Plain(nn.Module):
    """What somebody may have trained."""

    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions, self.target_positions = Positions(), Positions()
        self.stacks = Stacks(norm_first)
        self.generator = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.criterion = nn.Linear(2, 2)
        self.attention = nn.Linear(WIDTH, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [sentences, target, vocabulary]."""
        x, y = (
            self.embedding(ids) + table.pe[:, : ids.shape[1]]
            for ids, table in ((source, self.positions), (target, self.target_positions))
        )
        logits: Tensor = self.generator(self.stacks(x, y))
        return logits


def plain(folder: Path, norm_first: bool = True) -> Plain:
    torch.manual_seed(5)
    module = Plain(norm_first).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    torch.save({"epoch": 3, "state_dict": module.state_dict()}, folder / "model.pt")
    describe(folder, HEAD + MODEL.replace("NORM", "pre" if norm_first else "post") + TENSORS)
    return module


def describe(folder: Path, text: str) -> None:
    (folder / "checkpoint.toml").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("norm_first", [True, False])
def test_logits_are_those_of_torch(tmp_path: Path, norm_first: bool) -> None:
    module = plain(tmp_path, norm_first)
    checkpoint = load_checkpoint(tmp_path)
    source, target = (torch.randint(2, VOCABULARY, (3, size)) for size in (17, 9))
    with torch.no_grad():
        expected, found = module(source, target), checkpoint.model(source, torch.full((3,), 17), target)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.3
    assert checkpoint.generation.max_new_tokens == LONGEST
    assert (checkpoint.source_languages, checkpoint.target_languages) == (("en",), ("pt",))


def test_vectors_may_be_pooled_by_weights_of_the_file(tmp_path: Path) -> None:
    module = plain(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    own, hidden = checkpoint.encoding, torch.randn(7, WIDTH)
    assert (own.poolings, own.normalize) == ((Pooling.ATTENTION, Pooling.MAX), True)
    found = Encoding(own.poolings, normalize=True, scores=checkpoint.scores).of(hidden.numpy()).data
    with torch.no_grad():
        pooled = torch.cat([(module.attention(hidden).softmax(0) * hidden).sum(0), hidden.amax(0)])
    torch.testing.assert_close(torch.from_numpy(found), nn.functional.normalize(pooled, dim=0))
    checkpoint.make_files(tmp_path)
    assert own.scores is not None and (tmp_path / own.scores.file).exists()


CHANGES = {
    ('scores = "attention"', ""): "poolings: attention has scores, and there are none",
    ('scores = "attention"', 'scores = "attn"'): "tensor attn.weight is missing; expected one of shape [1, 24]",
    ('scores = "attention"', 'scores = "criterion"'): "criterion.weight has shape [2, 2]; expected [1, 24]",
    ('["attention", "max"]', '["attention", "median"]'): "encoding.poolings.1 is 'median'",
    ('["attention", "max"]', '["max"]\ndense = 3'): "encoding.dense",
    ("width = 24", "width = 25"): "width 25 is not a multiple of 3 heads",
    ("width = 24", "breadth = 24"): "model.width is missing",
    ("encoder_ffn = 40", "encoder_ffn = 48"): "linear1.weight has shape [40, 24]; expected [48, 24]",
    ("encoder_layers = 2", "encoder_layers = 1"): "has no tensor stacks.encoder.layers.1.linear1.bias and 11 more",
    ("encoder_layers = 2", "encoder_layers = 3"): "layers.2.self_attn.in_proj_weight is missing",
    ('"criterion."', '"head."'): "has no tensor criterion.bias and 1 more",
    ("encoder_norm =", "encoder_nrm ="): "has encoder_nrm, which the model does not; did you mean encoder_norm?",
    ("encoder_norm =", "#"): "tensors has no encoder_norm.weight, of which the model is made",
    ("weight[2/3]", "weight[2/7]"): "in_proj_weight[2/7] is a part of",
    ("weight[3/3]", "weight[3/4]"): "multihead_attn.in_proj_weight[3/4] is missing",
    ('"generator.weight"', '"generator.wight"'): "tensor generator.wight is missing; expected one of shape [263, 24]",
    ('entry = "state_dict"', ""): "holds no dictionary of tensors; it has epoch, state_dict",
    ('"state_dict"', '"model"'): "holds no dictionary of tensors in 'model'; it has epoch, state_dict",
    ('weights = "model.pt"', 'weights = "../model.pt"'): "weights is '../model.pt'; String should match pattern",
    ('weights = "model.pt"', 'weights = "other.pt"'): "other.pt cannot be read",
    ('["attention", "max"]', '["attention", "max"]\ndimensions = 90'): "dimensions is 90; a vector has 48 values",
    ("[tensors]", "[generation]\nforced_end_id = 900\n[tensors]"): "token 900 is not one of 263 target tokens",
    ("[tensors]", "[generation]\nforced_begin_id = -1\n[tensors]"): "token -1 is not one of 263 target tokens",
    (
        "[tensors]",
        "[generation]\ndo_sample = true\nnum_beams = 3\n[tensors]",
    ): "beams are not sampled; take one",
    ('kind = "bytes"', 'kind = "bytes", offset = 99'): "the tokenizer has token 354; the model has 263 tokens",
    ('kind = "bytes"', 'kind = "words"'): "tokenizer is {'kind': 'words'}; Input tag 'words'",
    ('kind = "bytes"', 'kind = "tokenizers"'): "tokenizer.json cannot be read",
    ("decoder_layers = 3", "decoder_layers = 0"): "an encoder alone, which does not translate",
    (
        'output_weight = "generator.weight"',
        "output_weight = []",
    ): "tensors has nothing that makes up output_weight; name at",
    ('source_embedding = "embedding.weight"', 'source_embedding = ["embedding.weight", "generator.weight"]'): (
        "source_embedding has 264 rows; its tensors have 526"
    ),
    ("[tensors]", "[tensors"): "is not TOML",
    ("pad_id = 0", "pad_id = 1979-05-27"): "is not TOML of text, numbers and tables",
    ("pad_id = 0", "pad_id = 263"): "pad_id 263 is not below the vocabulary size 263",
    ("pad_id = 0", 'pad_id = "nought"'): "model.pad_id is 'nought'; Input should be a valid integer",
}


def test_pieces_that_the_model_has_no_row_for_are_refused(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_checkpoint(tmp_path / "marian"))
    assert isinstance(checkpoint.tokenizer, SentencePieceSpec)
    spec = checkpoint.tokenizer.model_copy(update={"unknown_id": 900})
    for tokenizer in (checkpoint.tokenizer, spec):
        write_described(tmp_path / "bare", checkpoint.model, tokenizer, tmp_path / "marian", ("en", "pt"))
        if tokenizer is not spec:
            load_checkpoint(tmp_path / "bare")
    with pytest.raises(CheckpointError, match="the tokenizer has token 900; the model has 212 tokens"):
        load_checkpoint(tmp_path / "bare")


@pytest.mark.parametrize(("change", "said"), CHANGES.items())
def test_what_does_not_fit_is_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    plain(tmp_path)
    text = (tmp_path / "checkpoint.toml").read_text(encoding="utf-8")
    assert change[0] in text
    describe(tmp_path, text.replace(*change, 1))
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(tmp_path)
    assert said in str(error.value) and "\n" not in str(error.value)
