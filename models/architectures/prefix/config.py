"""What shape one stack for source and target has. Torch-free."""

from typing import Literal

from pydantic import Field, model_validator

from models.config import Activation, ModelConfig, ModelShape, NormPlacement

Mask = Literal["both", "causal"]
"""What a token sees of its own text: all of it, or what is before it."""


class PrefixConfig(ModelShape):
    """Every choice `models.architectures.prefix.model.Prefix` can be built with.

    Both sides are the same layers, so that there are as many of them. A source and its target lie one behind the other:
    the target's first token stands behind the source's last one, which is fed in place of a start token. There are
    positions for `max_positions` of each.
    """

    architecture: Literal["prefix"]
    heads: int = Field(gt=0)
    ffn: int = Field(gt=0)
    max_positions: int = Field(gt=1, le=1 << 15)
    """Of a source, and of a target behind it."""
    source_mask: Mask = "both"
    """"both": a source's tokens see all of it, as in UniLM's sequence-to-sequence mask (Dong et al. 2019, section 2.2).
    "causal": what is before them, as in GPT-2 (Radford et al. 2019)."""
    norm: NormPlacement = "pre"
    activation: Activation = "gelu"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    embedding_norm: bool = False
    """The sum of embeddings and positions is normalised, as in BERT."""
    norm_epsilon: float = Field(default=1e-5, gt=0)
    scale_embedding: bool = False
    """Multiply token embeddings by sqrt(width)."""

    @model_validator(mode="after")
    def _one_stack(self) -> "PrefixConfig":
        if self.encoder_layers != self.decoder_layers:
            raise ValueError(
                f"there are {self.encoder_layers} encoder layers and {self.decoder_layers} decoder layers; both are "
                "one stack: take as many"
            )
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        if not (self.share_embeddings and self.tie_output):
            raise ValueError("share_embeddings or tie_output is false; one stack has one table of tokens")
        if self.decoder_start_id != self.end_id:
            raise ValueError(
                f"decoder_start_id is {self.decoder_start_id} and end_id {self.end_id}; a target begins behind the "
                "token that ends its source"
            )
        return self

    @property
    def layers(self) -> ModelConfig:
        """The shape of an encoder that has the same layers."""
        return ModelConfig(
            source_vocab_size=self.source_vocab_size,
            target_vocab_size=self.target_vocab_size,
            width=self.width,
            encoder_layers=self.encoder_layers,
            decoder_layers=0,
            encoder_heads=self.heads,
            decoder_heads=self.heads,
            encoder_ffn=self.ffn,
            decoder_ffn=self.ffn,
            max_positions=2 * self.max_positions,
            norm=self.norm,
            activation=self.activation,
            positions=self.positions,
            norm_epsilon=self.norm_epsilon,
            pad_id=self.pad_id,
            end_id=self.end_id,
            decoder_start_id=self.decoder_start_id,
        )
