"""The Transformer encoder-decoder (Vaswani et al. 2017, "Attention Is All You Need"), and the encoder alone.

Three ways through the same weights:

    forward      the teacher-forced pass over whole targets: training, and the reference that the others are held to
    encode       source -> hidden states -> cross-attention keys and values of every decoder layer
    decode_step  one token of each row against the KV cache: what is exported and served

Activations are two-dimensional, [tokens, width], so that every linear layer is one matrix product (one Gemm, exported).
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.architectures.architecture import Architecture, Decoded
from models.attention.attention import Packing
from models.attention.relative import RelativeBias
from models.attention.rotary import RotaryPositions, Turn
from models.config import ModelConfig
from models.halting import Halting, Pondering
from models.layers import DecoderLayer, EncoderLayer
from models.norms import make_norm
from models.positions import position_table, sinusoids


class Transformer(Architecture):
    """The model. See the module's docstring for the three ways through it."""

    config: ModelConfig

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.scale_embedding)
        if config.positions != "none":
            self.source_positions = position_table(config)
            if config.decoder_layers:
                self.target_positions = position_table(config)
        if config.depth_signal:
            depths = sinusoids(1 + max(config.encoder_layers, config.decoder_layers), config.width)
            self.depths = nn.Parameter(depths[1:], requires_grad=False)
        if config.halting:
            self.encoder_halting = Halting(config.width)
            if config.decoder_layers:
                self.decoder_halting = Halting(config.width)
        if config.relative != "none":
            self.source_relative = RelativeBias(config, config.encoder_layers, config.encoder_heads, both_ways=True)
            if config.decoder_layers:
                self.target_relative = RelativeBias(config, config.decoder_layers, config.decoder_heads)
        if config.rotary is not None:
            self.rotary = RotaryPositions(config)
        self.encoder_embedding_norm, self.decoder_embedding_norm = (
            nn.Identity() if kind == "none" else make_norm(config)
            for kind in (config.encoder_embedding_norm, config.decoder_embedding_norm)
        )
        self.encoder = make_layers(EncoderLayer, config, config.encoder_layers)
        if config.norm == "pre" and not config.first_norm:
            first = self.encoder[0]
            assert isinstance(first, EncoderLayer)
            first.attention.residual.norm = nn.Identity()
        self.decoder = make_layers(DecoderLayer, config, config.decoder_layers)
        if config.decoder_layers:
            depth = 1 if config.shared_layers else config.decoder_layers
            cross = 2 * config.inner(config.decoder_heads) * depth
            self.cross_kv = nn.Linear(config.width, cross, bias=config.bias)
        self.encoder_norm, self.decoder_norm = (
            make_norm(config) if config.has_last_norm else nn.Identity() for _ in range(2)
        )
        self.dropout = nn.Dropout(0.0)  # training sets the probability of this one and those of the residuals
        self._initialise()

    def encode_source(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See Architecture: keys and values of every decoder layer."""
        hidden = self.encode(ids, lengths)
        return hidden, self.cross_keys_values(hidden) if self.config.decoder_layers else []

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The last hidden states [sentences, source, width] of ids [sentences, source]."""
        sentences, source = ids.shape
        x = self._embed(ids, self.source_embedding)
        coordinates = None
        if self.config.depth_signal:
            coordinates = self.source_positions[:source].repeat(sentences, 1)
        elif self.config.sentences > 1:
            x = x + F.embedding(self._of_sentences(ids), self.source_positions)
        elif self.config.positions != "none":
            x = x + self.source_positions[:source]
        turns = None
        if self.config.rotary is not None:
            turns = self.rotary.over(torch.arange(source, device=ids.device).repeat(sentences))
        hidden = self._encoded(x.flatten(0, 1), lengths, source, None, coordinates, turns)
        return hidden.view(sentences, source, self.config.width)

    def encode_packed(self, ids: Tensor, positions: Tensor, padded: Tensor, places: Tensor, lengths: Tensor) -> Tensor:
        """The same [tokens, width] of sources that lie one after another, of which only attention is padded.

        ids, positions: [tokens]; padded, places: see `models.attention.attention.Packing`; lengths: [sentences]
        """
        x = self._embed(ids, self.source_embedding)
        embedded = None if self.config.positions == "none" else F.embedding(positions, self.source_positions)
        coordinates = embedded if self.config.depth_signal else None
        if embedded is not None and coordinates is None:
            x = x + embedded
        turns = None if self.config.rotary is None else self.rotary.over(positions)
        return self._encoded(x, lengths, padded.shape[1], Packing(padded, places), coordinates, turns)

    def _encoded(
        self,
        x: Tensor,
        lengths: Tensor,
        source: int,
        packing: Packing | None,
        coordinates: Tensor | None,
        turns: Sequence[Turn] | None = None,
    ) -> Tensor:
        x = self.dropout(self.encoder_embedding_norm(x))
        biases: Sequence[Tensor | None] = [None] * len(self.encoder)
        if self.config.relative != "none":
            biases = self.source_relative.over(source)
        if turns is not None:
            biases = self.rotary.biases(source)
        pondering = Pondering(self.encoder_halting, len(self.encoder)) if self.config.halting else None
        of_layers = zip(self.encoder, biases, turns or repeat(None, len(self.encoder)), strict=True)
        for depth, (layer, bias, turn) in enumerate(of_layers):
            entered = self._at_depth(x, coordinates, depth)
            x = layer(entered, lengths, packing, bias, turn)
            if pondering is not None:
                pondering.take(entered, x)
        hidden: Tensor = self.encoder_norm(x if pondering is None else pondering.output())
        return hidden

    def decode(self, encoded: Tensor, source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """`decode_target`, from the hidden states of `encode`."""
        return self.decode_target(self.cross_keys_values(encoded), source_lengths, target_ids)

    def decode_target(self, starts: Sequence[Tensor], source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """See Architecture: each layer's hidden states after its self-attention or recurrence, and the last ones."""
        sentences, target = target_ids.shape
        positions = None if self.config.positions == "none" else self.target_positions[:target]
        coordinates = None
        if positions is not None and self.config.depth_signal:
            coordinates = positions.repeat(sentences, 1)
            positions = None
        x = self.dropout(self._embed_target(target_ids, positions)).flatten(0, 1)
        biases: Sequence[Tensor | None] = [None] * len(self.decoder)
        if self.config.relative != "none":
            biases = self.target_relative.over(target)
        hidden = []
        pondering = Pondering(self.decoder_halting, len(self.decoder)) if self.config.halting else None
        for index, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            entered = self._at_depth(x, coordinates, index)
            x = layer.cell.over_target(entered, sentences, biases[index])
            hidden.append(x)
            x = layer.cross.over_target(x, starts[2 * index], starts[2 * index + 1], source_lengths)
            x = layer.feed_forward(x)
            if pondering is not None:
                pondering.take(entered, x)
        return [*hidden, x if pondering is None else pondering.output()]

    def cross_keys_values(self, encoded: Tensor) -> list[Tensor]:
        """Key, value of decoder layer 0, key, value of layer 1, ...: each [sentences, heads, source, head_dim]."""
        sentences, source, _ = encoded.shape
        heads, head_dim = self.config.decoder_heads, self.config.decoder_head_dim
        parts = self.cross_kv(encoded.flatten(0, 1)).split(heads * head_dim, dim=1)
        pairs = [part.view(sentences, source, heads, head_dim).transpose(1, 2) for part in parts]
        return pairs * self.config.decoder_layers if self.config.shared_layers else pairs

    def decode_step(
        self,
        ids: Tensor,
        positions: Tensor,
        total: Tensor,
        source_last: Tensor,
        source_total: Tensor,
        target_past: Sequence[Tensor],
        cross_past: Sequence[Tensor],
        cross_last: Sequence[Tensor],
        slots: Tensor | None = None,
    ) -> Decoded:
        """See Architecture. target_past: keys and values of self-attention, or states of recurrences."""
        embedded = None if self.config.positions == "none" else F.embedding(positions, self.target_positions)
        embedded, coordinates = (None, embedded) if self.config.depth_signal else (embedded, None)
        x = self._embed_target(ids, embedded)
        biases: Sequence[Tensor | None] = [None] * len(self.decoder)
        if self.config.relative != "none":
            slots = torch.arange(target_past[0].shape[2], device=ids.device) if slots is None else slots
            biases = self.target_relative.of_rows(positions, slots)
        target_present: list[Tensor] = []
        cross_present: list[Tensor] = []
        share = len(target_past) // len(self.decoder)
        pondering = Pondering(self.decoder_halting, len(self.decoder)) if self.config.halting else None
        for index, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            entered, past = self._at_depth(x, coordinates, index), target_past[index * share :][:share]
            x, present = layer.cell.step(entered, past, positions, total, biases[index])
            target_present += present
            pair = slice(2 * index, 2 * index + 2)
            x, query, present = layer.cross.step(x, cross_last[pair], cross_past[pair], source_last, source_total)
            cross_present += present
            x = layer.feed_forward(x)
            if pondering is not None:
                pondering.take(entered, x)
        return x if pondering is None else pondering.output(), query, target_present + cross_present

    def _of_sentences(self, ids: Tensor) -> Tensor:
        """Positions in the table of ids [sources, source]: a second sentence is what follows the first end token."""
        ends = (ids == self.config.end_id).long()
        second = ends.cumsum(1) > ends
        return torch.arange(ids.shape[1], device=ids.device) + self.config.max_positions * second

    def _at_depth(self, x: Tensor, coordinates: Tensor | None, depth: int) -> Tensor:
        """What a layer gets. coordinates: with signals of depth, each token's position [tokens, width]."""
        return x if coordinates is None else x + (coordinates + self.depths[depth])

    def _embed_target(self, ids: Tensor, positions: Tensor | None) -> Tensor:
        """What the first decoder layer gets. positions: the positions' embeddings, broadcast to the tokens'."""
        x = self._embed(ids, self.target_embedding)
        if self.config.decoder_embedding_norm == "tokens":
            normed: Tensor = self.decoder_embedding_norm(x)
            return normed if positions is None else normed + positions
        normed = self.decoder_embedding_norm(x if positions is None else x + positions)
        return normed


L = TypeVar("L", EncoderLayer, DecoderLayer)


def make_layers(kind: Callable[[ModelConfig], L], config: ModelConfig, count: int) -> nn.ModuleList:
    """Of one side: all of them the same one, or each with weights of its own."""
    if config.shared_layers and count:
        return nn.ModuleList([kind(config)] * count)
    return nn.ModuleList(kind(config) for _ in range(count))
