"""Checkpoints of other families with random weights, at the sizes of published ones."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

SEED = 7
TABLE_STD, MATRIX_STD = 0.1, 0.03
"""See `bench.packages.random_weights`."""


@dataclass(frozen=True)
class FamilyShape:
    """A checkpoint of a family. The sizes are keys of its config.json."""

    family: Literal["m2m_100", "t5"]
    sizes: Mapping[str, Any] = field(default_factory=dict)


NLLB_600M = FamilyShape(
    "m2m_100",
    {
        "vocab_size": 256206,
        "d_model": 1024,
        "encoder_layers": 12,
        "decoder_layers": 12,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "max_position_embeddings": 1024,
    },
)
"""facebook/nllb-200-distilled-600M"""
LARGE_VOCABULARY = FamilyShape(
    "m2m_100", {**NLLB_600M.sizes, "vocab_size": 256204, "encoder_layers": 1, "decoder_layers": 1}
)
"""One layer a side of it: 95 % of a decoder step's multiply-adds are its output layer's."""
T5_SMALL = FamilyShape(
    "t5", {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
)
"""google-t5/t5-small"""
LANGUAGE = 21
"""A token that stands for the language of targets."""
FILES = {
    "m2m_100": ("sentencepiece.bpe.model", "NllbTokenizer"),
    "t5": ("spiece.model", "T5Tokenizer"),
}
"""Of the tokenizer: the file that transformers looks for, and what it opens it with."""


def write_family(folder: Path, shape: FamilyShape, tokenizer: Path, dtype: torch.dtype = torch.float32) -> None:
    """Saves a folder as transformers does, with the pieces of the checkpoint in `tokenizer`.

    dtype: of the weights, and of the file

    Neither the end of a target nor padding is ever the best token, so that all sides decode the same number of tokens:
    their rows of the output layer are 0, and among so many tokens others are above that.
    """
    folder.mkdir()
    file, opened_with = FILES[shape.family]
    shutil.copyfile(tokenizer / "source.spm", folder / file)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": opened_with}))
    model = _random_model(shape, dtype)
    model.generation_config.forced_eos_token_id = None
    if shape.family == "m2m_100":
        model.generation_config.forced_bos_token_id = LANGUAGE
    model.save_pretrained(folder)


@torch.no_grad()
def _random_model(shape: FamilyShape, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(SEED)
    with torch.device("meta"):
        model = _model(shape)
    model.to(dtype).to_empty(device="cpu").eval().tie_weights()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.copy_(torch.randn_like(weight).sign() if name.endswith("norm.weight") else torch.zeros_like(weight))
        else:
            weight.normal_(std=TABLE_STD if len(weight) == shape.sizes["vocab_size"] else MATRIX_STD)
    model.get_input_embeddings().weight[[model.config.pad_token_id, model.config.eos_token_id]] = 0
    return model


def _model(shape: FamilyShape) -> PreTrainedModel:
    if shape.family == "t5":
        return T5ForConditionalGeneration(T5Config(**shape.sizes, decoder_start_token_id=0))
    return M2M100ForConditionalGeneration(M2M100Config(**shape.sizes))
