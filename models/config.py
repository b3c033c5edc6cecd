"""What shape a model has. Torch-free: export writes it into the package, the server reads it back."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]
NormPlacement = Literal["post", "pre"]
NormKind = Literal["layer", "rms"]
PositionKind = Literal["sinusoidal", "learned", "none"]
RelativeKind = Literal["none", "shared", "per_layer"]
EmbeddingNorm = Literal["none", "sum", "tokens"]
DecoderCell = Literal["attention", "ssru"]


class Frozen(BaseModel):
    """A value that is checked when made, cannot change, knows no other keys, and has numbers alone for numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class ModelShape(Frozen):
    """What there is to say of a model of any architecture."""

    architecture: str
    source_vocab_size: int = Field(gt=0)
    target_vocab_size: int = Field(gt=0)
    width: int = Field(gt=0)
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(ge=0)
    max_positions: int = Field(gt=1, le=1 << 16)
    """Most tokens of a source, and of a target."""
    share_embeddings: bool = True
    """Source and target tokens have one embedding table."""
    tie_output: bool = True
    """The output projection is the target embedding table."""
    output_bias: bool = True
    pad_id: int = Field(ge=0)
    end_id: int = Field(ge=0)
    decoder_start_id: int = Field(ge=0)

    @model_validator(mode="after")
    def _one_vocabulary(self) -> Self:
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"shared embeddings need one vocabulary: source has {self.source_vocab_size} tokens, "
                f"target {self.target_vocab_size}"
            )
        sizes, target = (self.source_vocab_size, self.target_vocab_size), self.target_vocab_size
        # Of two vocabularies either may have the padding, and both have the end.
        for name, size in (("pad_id", max(sizes)), ("end_id", min(sizes)), ("decoder_start_id", target)):
            if getattr(self, name) >= size:
                raise ValueError(f"{name} {getattr(self, name)} is not below the vocabulary size {size}")
        return self


class Rotary(Frozen):
    """How queries and keys of an encoder alone are turned by their positions, see `models.attention.rotary`."""

    base: float = Field(gt=1)
    """Of the wavelengths, in layers that see all of a text."""
    local_base: float = Field(gt=1)
    """In those that see a window."""
    window: int = Field(ge=0)
    """Tokens to either side that are in it."""
    local_layers: tuple[int, ...]
    """The layers that see a window, counted from 0."""


class ModelConfig(ModelShape):
    """Every choice `models.transformer.Transformer` can be built with.

    `decoder_layers` 0: an encoder alone, whose target side is its source side and is not computed.
    """

    architecture: Literal["transformer"] = "transformer"
    encoder_heads: int = Field(gt=0)
    decoder_heads: int = Field(gt=0)
    encoder_ffn: int = Field(gt=0)
    decoder_ffn: int = Field(gt=0)
    decoder_cell: DecoderCell = "attention"
    """How a decoder layer sees the target so far: self-attention, or a recurrence (`models.layers.Recurrence`)."""
    norm: NormPlacement = "post"
    """"post": x = norm(x + f(x)). "pre": x = x + f(norm(x)), and one more norm after the last layer."""
    last_norm: bool | None = None
    """Whether that norm after a side's last layer is there. None: where `norm` is "pre"."""
    norm_kind: NormKind = "layer"
    """"rms": x / sqrt(mean(x^2) + epsilon) * weight, without a mean and a bias (Zhang and Sennrich 2019)."""
    activation: Activation = "relu"
    """"gelu_tanh" is the GELU by its approximation with tanh."""
    gated: bool = False
    """A feed-forward layer's activation is multiplied by a second projection of its input (Shazeer 2020)."""
    bias: bool = True
    """Linear layers have biases, but for the output layer: see `output_bias`."""
    head_dim: int | None = Field(default=None, gt=0)
    """Numbers of a head. None: the width's share."""
    scale_scores: bool = True
    """A query's product with a key is divided by sqrt(head_dim)."""
    positions: PositionKind = "sinusoidal"
    """What is added to embeddings."""
    sentences: Literal[1, 2] = 1
    """2: the table of learned positions has those of a second sentence behind those of the first, both `max_positions`:
    what BERT's token types tell apart."""
    relative: RelativeKind = "none"
    """What each head adds to the scores of self-attention by the distance of two tokens: nothing, the same in all
    layers of a side, or something in each layer (Raffel et al. 2020, section 2.1)."""
    rotary: Rotary | None = None
    """Of an encoder alone: positions that turn queries and keys (Su et al. 2021)."""
    first_norm: bool = True
    """Where `norm` is "pre": the encoder's first layer normalises what its attention gets, as the others do."""
    encoder_embedding_norm: Literal["none", "sum"] = "none"
    """What the encoder normalises before its first layer: nothing, or the sum of embeddings and positions."""
    decoder_embedding_norm: EmbeddingNorm = "none"
    """The same of the decoder. "tokens": the embeddings, before positions are added."""
    shared_layers: bool = False
    """All layers of a side have the same weights (Dehghani et al. 2019, "Universal Transformers")."""
    depth_signal: bool = False
    """What is added to embeddings is added before every layer instead, with a signal of the layer's number beside it:
    the fixed sinusoids of Dehghani et al. 2019, equation 6."""
    halting: bool = False
    """Every token stops at a depth of its own (`models.halting`), of as many as there are layers."""
    scale_embedding: bool = False
    """Multiply token embeddings by sqrt(width)."""
    norm_epsilon: float = Field(default=1e-5, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> "ModelConfig":
        for heads in (self.encoder_heads, self.decoder_heads):
            if self.head_dim is None and self.width % heads:
                raise ValueError(f"width {self.width} is not a multiple of {heads} heads")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        if self.depth_signal and (self.positions == "none" or self.decoder_embedding_norm == "tokens"):
            raise ValueError(
                f"depth_signal is true, positions are {self.positions!r} and decoder_embedding_norm is "
                f"{self.decoder_embedding_norm!r}; a signal of depth is added to positions, which nothing may part"
            )
        head_dim = self.inner(self.encoder_heads) // self.encoder_heads
        if self.rotary is not None and (self.decoder_layers or head_dim % 2):
            raise ValueError(
                "rotary positions are of encoders alone, whose heads have an even number of numbers; there are "
                f"{self.decoder_layers} decoder layers, and a head has {head_dim}"
            )
        if self.halting and not self.shared_layers:
            raise ValueError("halting is True, and shared_layers is False; tokens halt where all depths have one layer")
        if self.relative != "none" and self.decoder_cell != "attention":
            raise ValueError(f"relative is {self.relative!r}; a decoder of {self.decoder_cell} has no self-attention")
        return self

    @property
    def has_last_norm(self) -> bool:
        """Whether a side's last hidden states are normalised."""
        return self.norm == "pre" if self.last_norm is None else self.last_norm

    @property
    def decoder_head_dim(self) -> int:
        """Numbers of a decoder's head."""
        return self.head_dim or self.width // self.decoder_heads

    @property
    def score_scale(self) -> float:
        """What a decoder's query times a key is multiplied by."""
        return self.decoder_head_dim**-0.5 if self.scale_scores else 1.0

    def inner(self, heads: int) -> int:
        """Numbers of so many heads together: the width, but with a `head_dim` of its own."""
        return heads * (self.head_dim or self.width // heads)
