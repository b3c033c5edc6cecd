"""special:model.yml, the configuration inside a model of Marian NMT."""

from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.reading import JsonKeys, invalid
from models.config import DecoderCell, ModelConfig

MAX_POSITIONS = 512
"""Marian's sinusoids have no end. It trains on sentences of 100 to 200 tokens, far above which translations are of no
use, and a package has room for every position in its tables and in the server's cache."""


class MarianNmtConfig(JsonKeys):
    """What special:model.yml says. Where a key has a default, it is Marian's for configurations without the key.

    Keys with one possible value are choices of Marian's that the Transformer does not have.
    """

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    type: Literal["transformer"]
    dim_vocabs: tuple[int, int] = Field(strict=False)
    dim_emb: int = Field(ge=4, multiple_of=2)
    enc_depth: int
    dec_depth: int
    transformer_heads: int
    transformer_dim_ffn: int
    transformer_decoder_dim_ffn: int = 0
    """0: as in the encoder."""
    transformer_ffn_activation: Literal["relu", "swish"] = "swish"
    transformer_decoder_autoreg: Literal["self-attention", "rnn"] = "self-attention"
    dec_cell: str = "gru"
    """Of a recurrent decoder ("rnn"), as is:"""
    layer_normalization: bool = False
    tied_embeddings_all: bool = False
    tied_embeddings_src: bool = False
    tied_embeddings: bool = False
    output_omit_bias: bool = False

    transformer_preprocess: Literal["", "d"] = ""
    transformer_postprocess: Literal["dan", "an"] = "dan"
    transformer_postprocess_emb: Literal["", "d"] = "d"
    transformer_postprocess_top: Literal["", "d"] = ""
    transformer_ffn_depth: Literal[2] = 2
    transformer_decoder_ffn_depth: Literal[0, 2] = 0
    transformer_attention_mask: Literal["default"] = "default"
    transformer_disable_position_embeddings: Literal[False] = False
    transformer_no_projection: Literal[False] = False
    transformer_pool: Literal[False] = False
    transformer_rnn_projection: Literal[False] = False
    transformer_tied_layers: list[int] = Field(default=[], max_length=0)
    transformer_train_position_embeddings: Literal[False] = False
    transformer_train_positions: Literal[False] = False
    lemma_dim_emb: Literal[0] = 0
    right_left: Literal[False] = False
    ulr: Literal[False] = False

    @property
    def share_embeddings(self) -> bool:
        """Both sides have one table."""
        return self.tied_embeddings_all or self.tied_embeddings_src

    @property
    def tie_output(self) -> bool:
        """The output projection is the target's table."""
        return self.tied_embeddings_all or self.tied_embeddings

    @property
    def decoder_ffn(self) -> int:
        return self.transformer_decoder_dim_ffn or self.transformer_dim_ffn


def model_config(marian: MarianNmtConfig, end_id: int, label: str) -> ModelConfig:
    """What the Transformer is built with.

    After each side's last token comes one more, which stands for nothing: see `models.checkpoint.marian_nmt.finish`.
    end_id: of the target
    label: how errors call the configuration
    """
    source_size, target_size = marian.dim_vocabs
    try:
        return ModelConfig(
            source_vocab_size=source_size + 1,
            target_vocab_size=target_size + 1,
            width=marian.dim_emb,
            encoder_layers=marian.enc_depth,
            decoder_layers=marian.dec_depth,
            encoder_heads=marian.transformer_heads,
            decoder_heads=marian.transformer_heads,
            encoder_ffn=marian.transformer_dim_ffn,
            decoder_ffn=marian.decoder_ffn,
            max_positions=MAX_POSITIONS,
            decoder_cell=decoder_cell(marian, label),
            activation=marian.transformer_ffn_activation,
            scale_embedding=True,
            share_embeddings=marian.share_embeddings,
            tie_output=marian.tie_output,
            output_bias=not marian.output_omit_bias,
            norm_epsilon=1e-6,
            pad_id=source_size,
            end_id=end_id,
            decoder_start_id=target_size,
        )
    except ValidationError as error:
        raise invalid(error, label) from error


def decoder_cell(marian: MarianNmtConfig, label: str) -> DecoderCell:
    """Of the recurrent decoders, only that of Firefox's students is supported. Raises CheckpointError."""
    if marian.transformer_decoder_autoreg == "self-attention":
        return "attention"
    if marian.dec_cell != "ssru" or marian.layer_normalization:
        normalised = " with layer-normalization" if marian.layer_normalization else ""
        raise CheckpointError(f"{label}: dec-cell is {marian.dec_cell!r}{normalised}; expected 'ssru' without it")
    return "ssru"
