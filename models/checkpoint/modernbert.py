"""ModernBERT as Hugging Face keeps it (Warner et al. 2024): rotary positions, gated layers, windows in most layers."""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError

from models.checkpoint.contents import CheckpointError, EncoderModel
from models.checkpoint.files.reading import JsonKeys, TensorFile, invalid, parse
from models.checkpoint.files.renames import Rename, fill
from models.checkpoint.files.weights import check_size, find_weights, read_weights
from models.checkpoint.tokenizers.encoders import read_encoders_tokenizer
from models.config import Activation, ModelConfig, Rotary
from models.transformer import Transformer

MODEL_TYPE = "modernbert"
PREFIX = "model."
"""Of all tensors, where a head was trained with them."""
HEADS = ("head.", "decoder.")
"""Tensors that only the training had a use for."""
MOST_TOKENS = 2048
"""Of a text in a package: our graphs compare all pairs of tokens, also those that are out of sight."""
ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
Kind = Literal["full_attention", "sliding_attention"]
GLOBAL: Kind = "full_attention"
LOCAL: Kind = "sliding_attention"
"""What a layer sees: all of a text, or a window."""


class Angles(JsonKeys):
    """What rope_parameters says of the layers of a kind."""

    rope_type: Literal["default"] = "default"
    rope_theta: float = Field(gt=1)


class ModernBertConfig(JsonKeys):
    """What config.json says. Where a key has a default, it is Hugging Face's."""

    BESIDE = frozenset({"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta", "sliding_window"})
    """Those of `OtherNames`."""
    architectures: list[str] | None = None
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int = Field(gt=0)
    num_attention_heads: int
    intermediate_size: int
    hidden_activation: Literal["relu", "gelu", "silu"] = "gelu"
    max_position_embeddings: int
    norm_eps: float = Field(default=1e-5, gt=0)
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    local_attention: int = Field(default=128, ge=0)
    layer_types: list[Kind]
    rope_parameters: dict[Kind, Angles]
    rope_scaling: None = None
    is_encoder_decoder: Literal[False] = False
    pad_token_id: int = 50283


class OtherNames(JsonKeys):
    """Keys that say the same to transformers: those of before version 5, and `sliding_window`."""

    num_hidden_layers: int
    layer_types: list[Kind] | None = None
    global_attn_every_n_layers: int = Field(default=3, gt=0)
    rope_parameters: dict[str, dict[str, Any] | None] | None = None
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    local_attention: int = 128
    sliding_window: int | None = None
    """Half of `local_attention`, before which it goes."""

    def in_new_words(self) -> dict[str, Any]:
        """What they say by the names of version 5."""
        every, layers = self.global_attn_every_n_layers, range(self.num_hidden_layers)
        said = self.rope_parameters or {}
        bases = {GLOBAL: self.global_rope_theta, LOCAL: self.local_rope_theta}
        window = self.sliding_window
        return {
            "layer_types": self.layer_types or [LOCAL if layer % every else GLOBAL for layer in layers],
            "rope_parameters": {kind: {"rope_theta": base} | (said.get(kind) or {}) for kind, base in bases.items()},
            "local_attention": self.local_attention if window is None else 2 * window,
        }


def read(folder: Path, content: dict[str, Any]) -> EncoderModel:
    """A folder, of whose config.json this is the content. Raises CheckpointError."""
    file = folder / "config.json"
    settings = parse(ModernBertConfig, content | parse(OtherNames, content, file).in_new_words(), file)
    check_architecture(settings, file)
    tokenizer = read_encoders_tokenizer(folder, settings.vocab_size)
    config, weights = model_config(settings, tokenizer.end_id, file), find_weights(folder)
    model = load_model(weights, read_weights(weights).without_prefix(PREFIX), settings, config)
    return EncoderModel(config, model, tokenizer, weights, None)


def check_architecture(settings: ModernBertConfig, file: Path) -> None:
    """Raises CheckpointError where config.json says what is not computed here."""
    head = (settings.architectures or [""])[0]
    if head.endswith("Classification"):
        raise CheckpointError(
            f"{file}: architectures is {head!r}, whose head has a norm, which labels of packages do without; "
            "AutoModel.from_pretrained(FOLDER).save_pretrained(NEW) leaves the encoder alone"
        )
    if len(settings.layer_types) != settings.num_hidden_layers:
        raise CheckpointError(
            f"{file}: layer_types has {len(settings.layer_types)} layers; num_hidden_layers is "
            f"{settings.num_hidden_layers}"
        )
    if settings.attention_bias != settings.mlp_bias:
        raise CheckpointError(
            f"{file}: attention_bias is {settings.attention_bias} and mlp_bias {settings.mlp_bias}; expected the same"
        )


def model_config(settings: ModernBertConfig, end_id: int, file: Path) -> ModelConfig:
    """What the Transformer is built with. Raises CheckpointError."""
    angles = settings.rope_parameters
    try:
        return ModelConfig(
            source_vocab_size=settings.vocab_size,
            target_vocab_size=settings.vocab_size,
            width=settings.hidden_size,
            encoder_layers=settings.num_hidden_layers,
            decoder_layers=0,
            encoder_heads=settings.num_attention_heads,
            decoder_heads=settings.num_attention_heads,
            encoder_ffn=settings.intermediate_size,
            decoder_ffn=settings.intermediate_size,
            max_positions=min(settings.max_position_embeddings, MOST_TOKENS),
            norm="pre",
            first_norm=False,
            activation=ACTIVATIONS[settings.hidden_activation],
            gated=True,
            bias=settings.attention_bias,
            positions="none",
            rotary=Rotary(
                base=angles[GLOBAL].rope_theta,
                local_base=angles[LOCAL].rope_theta,
                window=settings.local_attention // 2,
                local_layers=tuple(i for i, kind in enumerate(settings.layer_types) if kind == LOCAL),
            ),
            encoder_embedding_norm="sum",
            norm_epsilon=settings.norm_eps,
            pad_id=settings.pad_token_id,
            end_id=end_id,
            decoder_start_id=end_id,
        )
    except ValidationError as error:
        raise invalid(error, file) from error


@torch.no_grad()
def load_model(weights: Path, tensors: TensorFile, settings: ModernBertConfig, config: ModelConfig) -> Transformer:
    """Builds the Transformer and puts the weights into it. Raises CheckpointError."""
    tensors.leave(HEADS)
    check_size(config, weights)
    model = Transformer(config)
    table = settings.vocab_size, settings.hidden_size
    norms = {"encoder_embedding_norm": "embeddings.norm", "encoder_norm": "final_norm"}
    products = dict[str, str]()
    for index in range(config.encoder_layers):
        ours, theirs = f"encoder.{index}", f"layers.{index}"
        if index:
            norms[f"{ours}.attention.residual.norm"] = f"{theirs}.attn_norm"
        norms[f"{ours}.feed_forward.residual.norm"] = f"{theirs}.mlp_norm"
        products |= {f"{ours}.attention.qkv": f"{theirs}.attn.Wqkv", f"{ours}.attention.out": f"{theirs}.attn.Wo"}
        products |= {f"{ours}.feed_forward.up": f"{theirs}.mlp.Wi", f"{ours}.feed_forward.down": f"{theirs}.mlp.Wo"}
    # Norms have biases of 0 where the checkpoint has none.
    parts = [*_parts(norms, settings.norm_bias), *_parts(products, settings.attention_bias)]
    fill(model, [Rename("source_embedding", ("embeddings.tok_embeddings.weight",), table), *parts], {}, tensors)
    return model.eval()


def _parts(modules: dict[str, str], bias: bool) -> list[Rename]:
    names = ("weight", "bias") if bias else ("weight",)
    return [Rename(f"{ours}.{name}", (f"{theirs}.{name}",)) for ours, theirs in modules.items() for name in names]
