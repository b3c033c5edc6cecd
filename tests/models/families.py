"""Encoder-decoder checkpoints with random weights, made and saved by transformers, odd in every dimension."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    BlenderbotSmallConfig,
    BlenderbotSmallForConditionalGeneration,
    FSMTConfig,
    FSMTForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
)

VOCABULARY, TARGETS = 151, 133
LONGEST = 70
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 72,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": LONGEST,
    "init_std": 0.35,
}
TWO_VOCABULARIES = {key: value for key, value in SHAPE.items() if key != "vocab_size"} | {
    "langs": ["en", "ru"],
    "src_vocab_size": VOCABULARY,
    "tgt_vocab_size": TARGETS,
}


@dataclass(frozen=True)
class Family:
    """What makes a model, and what becomes of its generation_config.json."""

    make: Callable[[], Any]
    generation: Mapping[str, object] = field(default_factory=dict)
    end_bias: float = 0.0
    """Of the logits, so that some targets end early and some late."""


BART_LIKE: dict[str, Family] = {
    "bart": Family(lambda: BartForConditionalGeneration(BartConfig(**SHAPE)), end_bias=5.0),
    "bart, as for summaries": Family(
        lambda: BartForConditionalGeneration(BartConfig(**SHAPE, activation_function="relu")),
        {"forced_bos_token_id": 0, "min_length": 12, "num_beams": 4, "length_penalty": 2.0},
        end_bias=12.0,
    ),
    "mbart": Family(
        lambda: MBartForConditionalGeneration(MBartConfig(**SHAPE, scale_embedding=True, decoder_start_token_id=17)),
        end_bias=2.0,
    ),
    "mbart-50": Family(
        lambda: MBartForConditionalGeneration(MBartConfig(**SHAPE, decoder_start_token_id=2)),
        {"forced_bos_token_id": 17, "min_new_tokens": 3},
        end_bias=2.0,
    ),
    "plbart": Family(
        lambda: PLBartForConditionalGeneration(PLBartConfig(**SHAPE, decoder_start_token_id=149)), end_bias=5.0
    ),
    "pegasus": Family(
        lambda: PegasusForConditionalGeneration(
            PegasusConfig(**SHAPE, scale_embedding=True, activation_function="relu")
        ),
        end_bias=5.0,
    ),
    "m2m_100": Family(
        lambda: M2M100ForConditionalGeneration(M2M100Config(**SHAPE)), {"forced_bos_token_id": 21, "num_beams": 5}
    ),
    "blenderbot": Family(
        lambda: BlenderbotForConditionalGeneration(BlenderbotConfig(**SHAPE, encoder_no_repeat_ngram_size=3)),
        {"min_length": 20},
        end_bias=6.0,
    ),
    "blenderbot-small": Family(lambda: BlenderbotSmallForConditionalGeneration(BlenderbotSmallConfig(**SHAPE))),
    "fsmt": Family(lambda: FSMTForConditionalGeneration(FSMTConfig(**TWO_VOCABULARIES))),
}


def write_family(folder: Path, family: Family, seed: int = 1) -> Path:
    """Saves a random model. Its padding is never produced.

    The signs of norms differ, or else a tied output would find each token most like itself and repeat it for ever.
    """
    torch.manual_seed(seed)
    model = family.make().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter += torch.randn_like(parameter) * 0.1
            if name.endswith(("norm.weight", "layernorm_embedding.weight")):
                parameter *= torch.randn_like(parameter).sign()
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.5)
            model.final_logits_bias[0, model.config.eos_token_id] += family.end_bias
    model.generation_config.update(bad_words_ids=[[model.config.pad_token_id]], **family.generation)
    model.save_pretrained(folder)
    return folder
