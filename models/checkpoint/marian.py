"""Marian models as Hugging Face keeps them (OPUS-MT): the reference is transformers' `MarianMTModel`."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import Field, ValidationError

from models.best_tokens import NEVER
from models.checkpoint.contents import Checkpoint, CheckpointError
from models.checkpoint.files.reading import JsonKeys, invalid, notices, parse, read_json
from models.checkpoint.files.renames import Rename, fill, linear
from models.checkpoint.files.weights import check_size, find_weights, read_weights, weights_sha256
from models.checkpoint.generation import GenerationSettings, generation_file, read_generation
from models.checkpoint.tokenizers.marian import read_tokenizer_config, tokenizer_spec
from models.config import Activation, ModelConfig
from models.transformer import Transformer

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}


class MarianConfig(JsonKeys):
    """What config.json says. Where a key has a default, it is Hugging Face's for configurations without the key."""

    SAME: ClassVar[Mapping[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    }
    vocab_size: int = Field(gt=0)
    decoder_vocab_size: int | None = None
    d_model: int = Field(gt=0)
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)
    encoder_attention_heads: int = Field(gt=0)
    decoder_attention_heads: int = Field(gt=0)
    encoder_ffn_dim: int = Field(gt=0)
    decoder_ffn_dim: int = Field(gt=0)
    max_position_embeddings: int = Field(gt=1, le=1 << 16)
    activation_function: Literal["relu", "gelu", "swish", "silu"]
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int
    # Of the choices Marian itself has, Hugging Face's MarianMTModel has these, whatever config.json says.
    normalize_before: Literal[False] = False
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True
    add_bias_logits: Literal[False] = False
    # Other choices are models of another kind.
    is_encoder_decoder: Literal[True] = True
    is_decoder: Literal[False] = False

    @property
    def source_table(self) -> str:
        """Name of the source side's embedding table."""
        return "model.shared.weight" if self.share_encoder_decoder_embeddings else "model.encoder.embed_tokens.weight"

    @property
    def target_table(self) -> str:
        """Name of the target side's embedding table."""
        return "model.shared.weight" if self.share_encoder_decoder_embeddings else "model.decoder.embed_tokens.weight"

    @property
    def target_vocab_size(self) -> int:
        """Rows of the target side's table."""
        return self.vocab_size if self.share_encoder_decoder_embeddings else self.decoder_vocab_size or self.vocab_size


def load(folder: Path) -> Checkpoint:
    """Reads a folder with config.json, tokenizer_config.json, vocab.json, source.spm, target.spm and the weights.

    generation_config.json is optional, target_vocab.json there where the two sides have ids of their own.
    Raises CheckpointError.
    """
    marian = parse(MarianConfig, read_json(folder / "config.json"), folder / "config.json")
    settings = read_generation(folder)
    config = model_config(marian, settings, folder / "config.json")
    generation = settings.defaults_of(config, generation_file(folder))
    tokens = read_tokenizer_config(folder)
    tokenizer = tokenizer_spec(folder, tokens, config)
    weights = find_weights(folder)
    model = load_model(weights, marian, config)
    if settings.renormalize_logits:
        suppress(model, generation.suppressed_ids)
    return Checkpoint(
        name=folder.resolve().name,
        config=config,
        model=model.eval(),
        tokenizer=tokenizer,
        generation=generation,
        source_languages=(tokens.source_lang.replace("_", "-"),),
        target_languages=tuple(tokenizer.target_codes) or (tokens.target_lang.replace("_", "-"),),
        files={name: folder / name for name in tokenizer.files} | notices(folder),
        sha256=weights_sha256(weights),
        in_transformers=True,
    )


def model_config(marian: MarianConfig, settings: GenerationSettings, file: Path) -> ModelConfig:
    """What the Transformer is built with. Raises CheckpointError."""
    if marian.share_encoder_decoder_embeddings and not marian.tie_word_embeddings:
        raise CheckpointError(
            f"{file}: share_encoder_decoder_embeddings is true and tie_word_embeddings is false, which is not "
            "supported; expected both to be true, or no shared embeddings"
        )
    if marian.d_model % 2:
        raise CheckpointError(f"{file}: d_model is {marian.d_model}; sinusoidal positions need an even number")
    start = settings.decoder_start_token_id
    try:
        return ModelConfig(
            source_vocab_size=marian.vocab_size,
            target_vocab_size=marian.target_vocab_size,
            width=marian.d_model,
            encoder_layers=marian.encoder_layers,
            decoder_layers=marian.decoder_layers,
            encoder_heads=marian.encoder_attention_heads,
            decoder_heads=marian.decoder_attention_heads,
            encoder_ffn=marian.encoder_ffn_dim,
            decoder_ffn=marian.decoder_ffn_dim,
            max_positions=marian.max_position_embeddings,
            activation=ACTIVATIONS[marian.activation_function],
            scale_embedding=marian.scale_embedding,
            share_embeddings=marian.share_encoder_decoder_embeddings,
            tie_output=marian.tie_word_embeddings,
            pad_id=marian.pad_token_id,
            end_id=marian.eos_token_id,
            decoder_start_id=marian.decoder_start_token_id if start is None else start,
        )
    except ValidationError as error:
        raise invalid(error, file) from error


def load_model(weights: Path, marian: MarianConfig, config: ModelConfig) -> Transformer:
    """Builds the Transformer and puts the weights into it."""
    tensors = read_weights(weights)
    check_size(config, weights)
    model = Transformer(config)
    fill(model, renames(marian), copies(marian), tensors)
    return model


def renames(marian: MarianConfig) -> list[Rename]:
    """Where each tensor of a MarianMTModel belongs."""
    width = marian.d_model
    return [
        Rename("source_embedding", (marian.source_table,), (marian.vocab_size, width)),
        *tables_of_the_target(marian),
        Rename("output_bias", ("final_logits_bias",), (1, marian.target_vocab_size), optional=True),
        Rename("source_positions", ("model.encoder.embed_positions.weight",), optional=True),
        Rename("target_positions", ("model.decoder.embed_positions.weight",), optional=True),
        *(rename for layer in range(marian.encoder_layers) for rename in encoder_layer(layer)),
        *(rename for layer in range(marian.decoder_layers) for rename in decoder_layer(layer)),
        *linear(
            "cross_kv",
            *(
                f"model.decoder.layers.{layer}.encoder_attn.{part}_proj"
                for layer in range(marian.decoder_layers)
                for part in "kv"
            ),
        ),
    ]


def tables_of_the_target(marian: MarianConfig) -> list[Rename]:
    """The target embedding and the output projection, where they are not the source embedding."""
    shape = (marian.target_vocab_size, marian.d_model)
    embedding = Rename("target_embedding", (marian.target_table,), shape)
    output = Rename("output_weight", ("lm_head.weight",), shape)
    shared, tied = marian.share_encoder_decoder_embeddings, marian.tie_word_embeddings
    return [] if shared else [embedding] if tied else [embedding, output]


def copies(marian: MarianConfig) -> dict[str, str]:
    """Tensors that are another tensor once more (older checkpoints have them)."""
    names = {
        "model.encoder.embed_tokens.weight": marian.source_table,
        "model.decoder.embed_tokens.weight": marian.target_table,
    }
    if marian.tie_word_embeddings:
        names["lm_head.weight"] = marian.target_table
    return {copy: original for copy, original in names.items() if copy != original}


def encoder_layer(index: int) -> list[Rename]:
    """Self-attention and feed-forward."""
    return _shared_sublayers(f"encoder.{index}", f"model.encoder.layers.{index}")


def decoder_layer(index: int) -> list[Rename]:
    """The same, and attention to the source but for its keys and values."""
    ours, theirs = f"decoder.{index}", f"model.decoder.layers.{index}"
    return [
        *_shared_sublayers(ours, theirs),
        *linear(f"{ours}.cross.query", f"{theirs}.encoder_attn.q_proj"),
        *linear(f"{ours}.cross.out", f"{theirs}.encoder_attn.out_proj"),
        *linear(f"{ours}.cross.residual.norm", f"{theirs}.encoder_attn_layer_norm"),
    ]


def _shared_sublayers(ours: str, theirs: str) -> list[Rename]:
    return [
        *linear(f"{ours}.attention.qkv", *(f"{theirs}.self_attn.{part}_proj" for part in "qkv")),
        *linear(f"{ours}.attention.out", f"{theirs}.self_attn.out_proj"),
        *linear(f"{ours}.attention.residual.norm", f"{theirs}.self_attn_layer_norm"),
        *linear(f"{ours}.feed_forward.up", f"{theirs}.fc1"),
        *linear(f"{ours}.feed_forward.down", f"{theirs}.fc2"),
        *linear(f"{ours}.feed_forward.residual.norm", f"{theirs}.final_layer_norm"),
    ]


@torch.no_grad()
def suppress(model: Transformer, token_ids: tuple[int, ...]) -> None:
    """Takes tokens out of the softmax: what `renormalize_logits` does after `bad_words_ids`."""
    model.output_bias[list(token_ids)] = NEVER
