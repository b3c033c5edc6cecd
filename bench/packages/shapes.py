"""Sizes of models. Torch-free."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Shape:
    """A Marian checkpoint with random weights."""

    layers: int
    """Of the encoder, and of the decoder unless that says otherwise."""
    width: int
    ffn: int
    heads: int
    vocab: int
    """Not less than the zoo's tokenizer has pieces."""
    decoder_layers: int | None = None
    activation: Literal["swish", "relu"] = "swish"

    @property
    def decoder_depth(self) -> int:
        """Layers of the decoder."""
        return self.decoder_layers or self.layers


BASE = Shape(layers=6, width=512, ffn=2048, heads=8, vocab=58101)
"""OPUS-MT's base size."""


def tiny(vocab: int = 32100) -> Shape:
    """The size of models/zoo/en-pt."""
    return Shape(layers=6, width=256, ffn=1536, heads=8, vocab=vocab, decoder_layers=2, activation="relu")
