"""A Marian checkpoint of a given size with random weights, for machines that have no trained one."""

import json
import shutil
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

from bench.packages.shapes import Shape
from models.best_tokens import NEVER

SEED = 7
MAX_POSITIONS = 512
TABLE_STD, MATRIX_STD = 0.1, 0.03
"""So that the best token leads as clearly as in a trained model, and is the best in fp16 too; and so that targets vary:
with larger matrices all positions come to look alike, and one token is repeated."""
TOKENIZER = ("source.spm", "target.spm", "tokenizer_config.json")


def write_checkpoint(folder: Path, shape: Shape, tokenizer: Path) -> None:
    """Writes a Hugging Face Marian directory, with the tokenizer of another checkpoint, its vocabulary filled up.

    No target ends before its limit: the end token's bias is NEVER. So all sides decode the same number of tokens.
    """
    folder.mkdir()
    for name in TOKENIZER:
        shutil.copyfile(tokenizer / name, folder / name)
    pieces = json.loads((tokenizer / "vocab.json").read_text(encoding="utf-8"))
    end, pad = pieces["</s>"], shape.vocab - 1
    pieces |= {f"<unused{index}>": index for index in range(pieces.pop("<pad>"), pad)} | {"<pad>": pad}
    (folder / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    model = _random_model(shape, end, pad)
    model.generation_config.forced_eos_token_id = None
    model.save_pretrained(folder)


def _random_model(shape: Shape, end: int, pad: int) -> MarianMTModel:
    """The signs of the norms differ: else a tied output finds each token most like itself, and repeats it for ever."""
    torch.manual_seed(SEED)
    model = MarianMTModel(_config(shape, end, pad)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight *= torch.randn_like(weight).sign()
            elif weight.dim() == 2 and "embed_positions" not in name:
                weight.normal_(std=TABLE_STD if len(weight) == shape.vocab else MATRIX_STD)
        model.final_logits_bias[0, [end, pad]] = NEVER
    return model


def _config(shape: Shape, end: int, pad: int) -> MarianConfig:
    return MarianConfig(
        vocab_size=shape.vocab,
        decoder_vocab_size=shape.vocab,
        d_model=shape.width,
        encoder_layers=shape.layers,
        decoder_layers=shape.decoder_depth,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.ffn,
        decoder_ffn_dim=shape.ffn,
        max_position_embeddings=MAX_POSITIONS,
        activation_function=shape.activation,
        scale_embedding=True,
        eos_token_id=end,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        forced_eos_token_id=None,
    )
