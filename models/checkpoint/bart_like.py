"""BART and those built like it, as Hugging Face keeps them: a family is a row of `FAMILIES`.

The references are transformers' models of the same `model_type`. What distinguishes the families is in their source
code, not in config.json, which is held to it.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from models.checkpoint.contents import Checkpoint, CheckpointError, Trained
from models.checkpoint.files.reading import (
    JsonKeys,
    TensorFile,
    invalid,
    notices,
    parse,
    read_json,
)
from models.checkpoint.files.renames import Rename, fill, linear
from models.checkpoint.files.weights import check_size, find_weights, read_weights, weights_sha256
from models.checkpoint.generation import GenerationSettings, generation_file, read_generation
from models.checkpoint.languages.told import MULTILINGUAL, check_told, no_start, told_languages
from models.checkpoint.marian import ACTIVATIONS, decoder_layer, encoder_layer, suppress
from models.checkpoint.tokenizers.found import read_tokenizer
from models.config import EmbeddingNorm, ModelConfig, NormPlacement, PositionKind
from models.transformer import Transformer

BUFFERS = tuple(
    f"model.{side}.{name}" for side in ("encoder", "decoder") for name in ("version", "embed_positions.weights")
)
"""Tensors of old files that nothing is made of: a version, and tables that are computed."""
SAME = {
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
}
BESIDE = frozenset(
    {
        *("normalize_before", "add_final_layer_norm", "normalize_embedding", "static_position_embeddings"),
        *("add_bias_logits", "force_bos_token_to_be_generated", "langs"),
    }
)
"""Keys that `check_architecture`, the generation's settings and a tokenizer look at."""
PREFIX = "model."
"""Of names in the file, unless a model was saved without what is on top of it."""
ON_TOP = ("final_logits_bias", "lm_head.weight")
"""Names without the prefix."""


class BartLikeConfig(JsonKeys):
    """What config.json says."""

    SAME = SAME
    BESIDE = BESIDE
    d_model: int = Field(gt=0)
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)
    encoder_attention_heads: int = Field(gt=0)
    decoder_attention_heads: int = Field(gt=0)
    encoder_ffn_dim: int = Field(gt=0)
    decoder_ffn_dim: int = Field(gt=0)
    max_position_embeddings: int = Field(gt=1, le=1 << 16)
    activation_function: Literal["relu", "gelu", "silu", "swish"]
    scale_embedding: bool
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int | None = None
    bos_token_id: int | None = 0
    """What `generate` feeds a decoder first, where nothing else is said."""
    # Other choices are models of another kind.
    is_encoder_decoder: Literal[True] = True
    is_decoder: Literal[False] = False
    quantization_config: None = None


class OneVocabulary(BartLikeConfig):
    """Both sides have the same tokens, and one table."""

    vocab_size: int = Field(gt=0)
    tie_word_embeddings: Literal[True] = True

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the source's vocabulary and of the target's."""
        return self.vocab_size, self.vocab_size


class TwoVocabularies(BartLikeConfig):
    """Each side has its own."""

    SAME = SAME | {"vocab_size": "tgt_vocab_size"}
    src_vocab_size: int = Field(gt=0)
    tgt_vocab_size: int = Field(gt=0)

    @property
    def sizes(self) -> tuple[int, int]:
        """Of the source's vocabulary and of the target's."""
        return self.src_vocab_size, self.tgt_vocab_size


Settings = OneVocabulary | TwoVocabularies


@dataclass(frozen=True)
class Family:
    """How the checkpoints of one kind differ."""

    norm: NormPlacement = "post"
    embedding_norms: tuple[Literal["none", "sum"], EmbeddingNorm] = ("none", "none")
    """Of the encoder, and of the decoder."""
    positions: PositionKind = "learned"
    """"sinusoidal": those of `models.positions.sinusoids`."""
    first_position: Literal["first", "third", "after padding"] = "first"
    """The row of the file's table that belongs to the first token."""
    computed: bool = False
    """A file without a table has that of `tensor2tensor_sinusoids`."""
    settings: type[Settings] = OneVocabulary
    defaults: dict[str, Any] = field(default_factory=dict)
    """Of keys that config.json may leave out."""
    starts: bool = False
    """The decoder may be fed the target's language first, and then config.json need not say what else."""

    def offset(self, settings: Settings) -> int:
        """Rows of the table before the first token's."""
        return {"first": 0, "third": 2, "after padding": settings.pad_token_id + 1}[self.first_position]


NORMED: tuple[Literal["none", "sum"], EmbeddingNorm] = ("sum", "sum")
UNSCALED, SCALED = {"scale_embedding": False}, {"scale_embedding": True}
FAMILIES = {
    "bart": Family(embedding_norms=NORMED, first_position="third", defaults=UNSCALED),
    "plbart": Family(embedding_norms=NORMED, first_position="third", defaults=SCALED, starts=True),
    "mbart": Family("pre", NORMED, first_position="third", defaults=UNSCALED, starts=True),
    "pegasus": Family("pre", positions="sinusoidal", defaults=UNSCALED),
    "m2m_100": Family("pre", first_position="after padding", computed=True, defaults=SCALED),
    "blenderbot": Family("pre", defaults=UNSCALED),
    "blenderbot-small": Family(embedding_norms=("sum", "tokens"), defaults=UNSCALED),
    "fsmt": Family(first_position="after padding", computed=True, settings=TwoVocabularies, defaults=SCALED),
}
"""By the `model_type` of a Hugging Face config.json. mBART-50 is an mBART, a dense NLLB an M2M100."""


def load(folder: Path) -> Checkpoint:
    """Reads what `read` does, and the tokenizer that transformers has for it. Raises CheckpointError."""
    trained, family = read(folder), read_json(folder / "config.json")["model_type"]
    tokenizer = read_tokenizer(folder, family in MULTILINGUAL)
    languages = told_languages(trained, family, tokenizer.languages)
    check_told(trained, family, tokenizer, folder)
    for largest, size in (
        (tokenizer.largest_source_id, trained.config.source_vocab_size),
        (tokenizer.largest_target_id, trained.config.target_vocab_size),
    ):
        if largest >= size:
            raise CheckpointError(f"{folder}: the tokenizer has token {largest}; the model has {size} tokens")
    return Checkpoint(
        name=folder.resolve().name,
        config=trained.config,
        model=trained.model,
        tokenizer=tokenizer.spec,
        generation=trained.generation,
        source_languages=tuple(languages) if tokenizer.pair is None else tokenizer.pair[:1],
        target_languages=tuple(languages) if tokenizer.pair is None else tokenizer.pair[1:],
        languages=languages,
        files=notices(folder) | tokenizer.files,
        made_files=tokenizer.made_files,
        sha256=weights_sha256(trained.weights),
        in_transformers=True,
        needs_languages=family in MULTILINGUAL,
    )


def read(folder: Path) -> Trained:
    """Reads config.json, generation_config.json if there is one, and the weights. Raises CheckpointError."""
    file = folder / "config.json"
    content = read_json(file)
    family = FAMILIES[content["model_type"]]
    settings = parse(family.settings, family.defaults | content, file)
    check_architecture(content, family, file)
    choices = read_generation(folder)
    config = model_config(settings, family, choices, file)
    check_padding(config, family, file)
    generation = choices.defaults_of(config, generation_file(folder))
    weights = find_weights(folder)
    model = load_model(weights, settings, family, config)
    if choices.renormalize_logits:
        suppress(model, generation.suppressed_ids)
    return Trained(config, model, generation, weights, said_start(settings, choices) is not None)


def check_architecture(content: dict[str, Any], family: Family, file: Path) -> None:
    """Raises CheckpointError where config.json says something else than transformers does, whatever it says."""
    pre, normed = family.norm == "pre", family.embedding_norms != ("none", "none")
    done = {
        "normalize_before": pre,
        "add_final_layer_norm": pre,
        "normalize_embedding": normed,
        "static_position_embeddings": family.positions == "sinusoidal",
        "add_bias_logits": False,
    }
    for key, does in done.items():
        if content.get(key, does) != does:
            raise CheckpointError(
                f"{file}: {key} is {content[key]!r}; a {content['model_type']} model of transformers is computed with "
                f"{does!r}"
            )


def check_padding(config: ModelConfig, family: Family, file: Path) -> None:
    """Raises CheckpointError where transformers takes a token of every text for padding, which has no position."""
    tokens = {"eos_token_id": config.end_id, "decoder_start_token_id": config.decoder_start_id}
    for key, token in tokens.items():
        if family.first_position == "after padding" and token == config.pad_id:
            raise CheckpointError(
                f"{file}: {key} and pad_token_id are {token}; where positions begin after the padding, a token that is "
                "padding has none, which is not supported: padding has to be a token of its own"
            )


def said_start(settings: Settings, choices: GenerationSettings) -> int | None:
    """What the decoder is fed first, as the files say it."""
    start = choices.decoder_start_token_id
    return settings.decoder_start_token_id if start is None else start


def model_config(settings: Settings, family: Family, choices: GenerationSettings, file: Path) -> ModelConfig:
    """What the Transformer is built with."""
    said = said_start(settings, choices)
    start = settings.bos_token_id if said is None and family.starts else said
    if start is None:
        raise no_start(file)
    source_size, target_size = settings.sizes
    try:
        return ModelConfig(
            source_vocab_size=source_size,
            target_vocab_size=target_size,
            width=settings.d_model,
            encoder_layers=settings.encoder_layers,
            decoder_layers=settings.decoder_layers,
            encoder_heads=settings.encoder_attention_heads,
            decoder_heads=settings.decoder_attention_heads,
            encoder_ffn=settings.encoder_ffn_dim,
            decoder_ffn=settings.decoder_ffn_dim,
            max_positions=settings.max_position_embeddings,
            norm=family.norm,
            activation=ACTIVATIONS[settings.activation_function],
            positions=family.positions,
            encoder_embedding_norm=family.embedding_norms[0],
            decoder_embedding_norm=family.embedding_norms[1],
            scale_embedding=settings.scale_embedding,
            share_embeddings=isinstance(settings, OneVocabulary),
            tie_output=settings.tie_word_embeddings,
            pad_id=settings.pad_token_id,
            end_id=settings.eos_token_id,
            decoder_start_id=start,
        )
    except ValidationError as error:
        raise invalid(error, file) from error


def load_model(weights: Path, settings: Settings, family: Family, config: ModelConfig) -> Transformer:
    """Builds the Transformer and puts the weights into it."""
    tensors = read_weights(weights).with_prefix(PREFIX, ON_TOP)
    tensors.leave(BUFFERS)
    check_size(config, weights)
    model = Transformer(config)
    _put_positions(model, tensors, settings, family)
    fill(model, _renames(config), _copies(config), tensors)
    return model.eval()


def tensor2tensor_sinusoids(rows: int, width: int) -> Tensor:
    """fp32 [rows, width]: all sines, then all cosines, of frequencies from 1 to 1/10000, both included.

    `M2M100SinusoidalPositionalEmbedding` of transformers, operation by operation.
    """
    half = width // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = torch.arange(rows).float().unsqueeze(1) * frequencies.unsqueeze(0)
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return torch.nn.functional.pad(table, (0, width % 2))


@torch.no_grad()
def _put_positions(model: Transformer, tensors: TensorFile, settings: Settings, family: Family) -> None:
    offset, width = family.offset(settings), settings.d_model
    rows = settings.max_position_embeddings + offset
    for side, table in (("encoder", model.source_positions), ("decoder", model.target_positions)):
        name = f"model.{side}.embed_positions.weight"
        if name in tensors or not (family.computed or family.positions == "sinusoidal"):
            table[:] = tensors.take(name, (rows, width))[offset:]
        elif family.computed:
            table[:] = tensor2tensor_sinusoids(rows, width)[offset:]


def _renames(config: ModelConfig) -> list[Rename]:
    """Where each tensor belongs."""
    shapes = [(size, config.width) for size in (config.source_vocab_size, config.target_vocab_size)]
    norms = [
        (f"{side}_{ours}", f"model.{side}.{theirs}")
        for side, kind in (("encoder", config.encoder_embedding_norm), ("decoder", config.decoder_embedding_norm))
        for ours, theirs, there in (
            ("embedding_norm", "layernorm_embedding", kind != "none"),
            ("norm", "layer_norm", config.norm == "pre"),
        )
        if there
    ]
    tables = [Rename("source_embedding", (_source_table(config),), shapes[0])]
    if not config.share_embeddings:
        tables.append(Rename("target_embedding", (_target_table(config),), shapes[1]))
    if not config.tie_output:
        tables.append(Rename("output_weight", ("model.decoder.output_projection.weight",), shapes[1]))
    return [
        *tables,
        Rename("output_bias", ("final_logits_bias",), (1, config.target_vocab_size), optional=True),
        *(rename for ours, theirs in norms for rename in linear(ours, theirs)),
        *(rename for layer in range(config.encoder_layers) for rename in encoder_layer(layer)),
        *(rename for layer in range(config.decoder_layers) for rename in decoder_layer(layer)),
        *linear(
            "cross_kv",
            *(
                f"model.decoder.layers.{layer}.encoder_attn.{part}_proj"
                for layer in range(config.decoder_layers)
                for part in "kv"
            ),
        ),
    ]


def _copies(config: ModelConfig) -> dict[str, str]:
    """Tensors that are another tensor once more."""
    target = _target_table(config)
    names = {
        "model.encoder.embed_tokens.weight": _source_table(config),
        "model.decoder.embed_tokens.weight": target,
        **({"lm_head.weight": target, "model.decoder.output_projection.weight": target} if config.tie_output else {}),
    }
    return {copy: original for copy, original in names.items() if copy != original}


def _source_table(config: ModelConfig) -> str:
    return "model.shared.weight" if config.share_embeddings else "model.encoder.embed_tokens.weight"


def _target_table(config: ModelConfig) -> str:
    return "model.shared.weight" if config.share_embeddings else "model.decoder.embed_tokens.weight"
