"""One stack of layers for a source and its target, told apart by what they see alone.

Dong et al. 2019, "Unified Language Model Pre-training for Natural Language Understanding and Generation" (UniLM);
Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).

    source tokens   see all of their source, or what is before them
    target tokens   see all of the source, and the target before them

A package's encoder reads the source, and its keys and values are what the cache of a hypothesis begins with. The first
token that is fed is the source's last one, once more: what it sees is the same, so that its keys and values are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.architectures.architecture import Architecture, Decoded
from models.architectures.prefix.config import Mask, PrefixConfig
from models.attention import attention
from models.layers import EncoderLayer
from models.norms import make_norm
from models.positions import position_table

Look = Callable[[Tensor], Tensor]
"""Queries, keys and values, joined [tokens, 3 * width] -> what attention gives [tokens, width]."""


class Prefix(Architecture):
    """The model: every choice of `PrefixConfig`."""

    config: PrefixConfig

    def __init__(self, config: PrefixConfig) -> None:
        super().__init__(config, config.scale_embedding)
        layers = config.layers
        self.positions = position_table(layers)
        self.embedding_norm = make_norm(layers) if config.embedding_norm else nn.Identity()
        self.layers = nn.ModuleList(EncoderLayer(layers) for _ in range(config.decoder_layers))
        self.decoder_norm = make_norm(layers) if layers.has_last_norm else nn.Identity()
        self.dropout = nn.Dropout(0.0)  # training sets the probability
        self._initialise()

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """See Architecture. Whatever token a target begins with, its source's last one is fed."""
        last = source_ids.gather(1, source_lengths.long().unsqueeze(1) - 1)
        return super().forward(source_ids, source_lengths, torch.cat([last, target_ids[:, 1:]], 1))

    def encode_source(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See Architecture: keys and values of every layer."""
        hidden, starts = self.read(ids, lengths, self.config.source_mask)
        return self.decoder_norm(hidden).view(*ids.shape, -1), starts

    def read_on(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Reads sources and the targets behind them in one pass. It gives what `decode_target` gives of a target.

        ids: int64 [sentences, tokens], every source's last token once; lengths: of the sources [sentences]
        Returns what `logits` takes [sentences * tokens, width].
        """
        return self.read(ids, lengths, "causal" if self.config.source_mask == "causal" else "prefix")[0]

    def read(self, ids: Tensor, lengths: Tensor, mask: Mask | Literal["prefix"]) -> tuple[Tensor, list[Tensor]]:
        """Reads whole texts: sources, or what a language model or a cloze test is trained on.

        ids: int64 [sentences, tokens]; lengths: [sentences], tokens before the padding
        mask: "prefix": `lengths` are of sources, whose targets are behind them; see `read_on`
        Returns what `logits` takes [sentences * tokens, width]; and key and value of layer 0, of layer 1, ...: each
        [sentences, heads, tokens, head_dim].
        """
        sentences, tokens = ids.shape
        heads, pairs = self.config.heads, list[Tensor]()
        look: Look = partial(attention.self_attention, lengths=lengths, heads=heads)
        if mask == "prefix":
            look = partial(attention.prefix_attention, lengths=lengths, heads=heads)
        elif mask == "causal":  # padding is behind all that sees anything
            look = partial(attention.causal_attention, sentences=sentences, heads=heads)
        x = self._enter(ids, self.positions[:tokens]).flatten(0, 1)
        for layer in self.layers:
            x, qkv = _apply(layer, x, look)
            parts = qkv.view(sentences, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
            pairs += [parts[1], parts[2]]
        return x, pairs

    def decode_target(self, starts: Sequence[Tensor], source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """See Architecture: what the output layer takes, alone. target_ids: with the source's last token first."""
        last = source_lengths.long() - 1
        places = last.unsqueeze(1) + torch.arange(target_ids.shape[1], device=last.device)
        x = self._enter(target_ids, F.embedding(places, self.positions)).flatten(0, 1)
        for index, layer in enumerate(self.layers):
            pair = starts[2 * index : 2 * index + 2]
            look = partial(attention.continued_attention, past=pair, lengths=last, heads=self.config.heads)
            x, _ = _apply(layer, x, look)
        return [x]

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
        """See Architecture. positions: with the source's tokens counted; target_past: keys and values of both."""
        x = self._enter(ids, F.embedding(positions, self.positions))
        present = list[Tensor]()
        for index, layer in enumerate(self.layers):
            past = target_past[2 * index : 2 * index + 2]

            def look(qkv: Tensor, past: Sequence[Tensor] = past) -> Tensor:
                found, *pair = attention.cached_attention(qkv, None, past, positions, total, self.config.heads)
                present.extend(pair)
                return found

            x, qkv = _apply(layer, x, look)
        return x, qkv[:, : self.config.width], present

    def _enter(self, ids: Tensor, positions: Tensor) -> Tensor:
        """What the first layer gets."""
        entered: Tensor = self.dropout(self.embedding_norm(self._embed(ids, self.source_embedding) + positions))
        return entered


def _apply(layer: nn.Module, x: Tensor, look: Look) -> tuple[Tensor, Tensor]:
    """A layer, which looks as it is told, of x [tokens, width]. Returns its queries, keys and values too."""
    assert isinstance(layer, EncoderLayer)
    around = layer.attention.residual
    qkv = layer.attention.qkv(around.enter(x))
    x = around.leave(x, layer.attention.out(look(qkv)))
    return layer.feed_forward(x), qkv
