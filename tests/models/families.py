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
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
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
    spread: Mapping[str, float] = field(default_factory=dict)
    """Standard deviation of the matrices whose names have this: the first that fits. The others stay as they are."""
    own_output: bool = False
    """The output layer becomes another than the embedding table, however it was made."""
    old: bool = False
    """There is no generation_config.json."""
    end_length: float = 1.0
    """Of the end token's row of the output layer, as many times what it was: longer ones end targets earlier."""


BART_LIKE: dict[str, Family] = {
    "bart": Family(lambda: BartForConditionalGeneration(BartConfig(**SHAPE)), end_bias=5.0),
    "bart, as for summaries": Family(
        lambda: BartForConditionalGeneration(BartConfig(**SHAPE, activation_function="relu")),
        {"forced_bos_token_id": 0, "min_length": 12, "num_beams": 4, "length_penalty": 2.0},
        end_bias=12.0,
    ),
    "bart, as an old file forces its beginning": Family(
        lambda: BartForConditionalGeneration(BartConfig(**SHAPE, force_bos_token_to_be_generated=True)),
        end_bias=5.0,
        old=True,
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


T5_SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 40,
    "d_kv": 16,
    "d_ff": 56,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 3,
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
T5_SPREAD = {"relative": 1.0, "shared": 0.35, "": 0.25}


def _t5(**settings: Any) -> T5ForConditionalGeneration:
    return T5ForConditionalGeneration(T5Config(**T5_SHAPE | settings))


T5_LIKE: dict[str, Family] = {
    "t5": Family(_t5, spread=T5_SPREAD, end_length=2.5),
    "t5, version 1.1": Family(
        lambda: _t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        spread=T5_SPREAD,
        end_length=2.5,
        own_output=True,
    ),
    "t5 of silu": Family(
        lambda: _t5(feed_forward_proj="gated-silu"),
        {"min_new_tokens": 4},
        spread=T5_SPREAD,
        end_length=2.5,
        own_output=True,
    ),
    "mt5": Family(lambda: MT5ForConditionalGeneration(MT5Config(**T5_SHAPE)), spread=T5_SPREAD, end_length=2.5),
    "umt5": Family(lambda: UMT5ForConditionalGeneration(UMT5Config(**T5_SHAPE)), spread=T5_SPREAD, end_length=2.5),
    "umt5, output of its own": Family(
        lambda: UMT5ForConditionalGeneration(UMT5Config(**T5_SHAPE)), spread=T5_SPREAD, end_length=2.5, own_output=True
    ),
}


def write_family(folder: Path, family: Family) -> Path:
    """Saves a random model. Its padding is never produced.

    The signs of norms differ, or else a tied output would find each token most like itself and repeat it for ever.
    """
    torch.manual_seed(1)
    model = family.make().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter += torch.randn_like(parameter) * 0.1
            elif spread := next((std for part, std in family.spread.items() if part in name), None):
                parameter.normal_(std=spread)
            if name.endswith(("norm.weight", "layernorm_embedding.weight")):
                parameter *= torch.randn_like(parameter).sign()
        if family.own_output:
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.35)
        model.get_output_embeddings().weight[model.config.eos_token_id] *= family.end_length
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.5)
            model.final_logits_bias[0, model.config.eos_token_id] += family.end_bias
    model.generation_config.update(bad_words_ids=[[model.config.pad_token_id]], **family.generation)
    model.save_pretrained(folder)
    if family.old:
        (folder / "generation_config.json").unlink()
    return folder
