"""Which source token a target token is of, by where the model looks.

A head of cross-attention looks at the source token that it is about to translate (Garg et al. 2019, "Jointly Learning
to Align and Translate with Transformer Models"), or, a step later, at the one it has just translated (Chen et al. 2020,
"Accurate Word Alignment Induction from Neural Machine Translation"). Which head does so best differs between models.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.layers import DecoderLayer
from models.transformer import Transformer

BATCH_TOKENS = 4096
"""Of the longer side, what fills it up included."""

TokenIds = Sequence[int]
Pair = tuple[TokenIds, TokenIds]
"""Token ids of a source and of its target, the end tokens included."""


@dataclass(frozen=True)
class Aligner:
    """A head of cross-attention."""

    layer: int
    head: int | None
    """None: the mean of the layer's heads."""
    later: bool
    """It looks when the target token is fed, not when it is chosen."""

    def __str__(self) -> str:
        heads = "the mean of the heads" if self.head is None else f"head {self.head}"
        return f"{heads} of layer {self.layer}{', a step later' if self.later else ''}"

    def find(self, attention: Sequence[Tensor]) -> Tensor:
        """The places of the source tokens [sentences, target], of each layer's attention as `attention` gives it."""
        weights = attention[self.layer]
        weights = weights.mean(1) if self.head is None else weights[:, self.head]
        return (weights[:, 1:] if self.later else weights[:, :-1]).argmax(2)


def aligners(model: Transformer) -> list[Aligner]:
    """All that a model has."""
    heads = [None, *range(model.config.decoder_heads)]
    layers = range(model.config.decoder_layers)
    return [Aligner(layer, head, later) for layer in layers for head in heads for later in (False, True)]


@torch.no_grad()
def align(model: Transformer, pairs: Sequence[Pair], wanted: Sequence[Aligner]) -> Iterator[list[NDArray[np.int64]]]:
    """Batch by batch, the token pairs that each aligner finds [2, target tokens]: source tokens, target tokens.

    The batches are those of `batches`.
    """
    for batch in batches(pairs):
        sources, source_lengths = _pad([source for source, _ in batch], model.config.pad_id)
        targets, target_lengths = _pad([target for _, target in batch], model.config.end_id)
        weights = attention(model, sources, source_lengths, targets)
        there = torch.arange(targets.shape[1]) < target_lengths[:, None]
        chosen = [sources.gather(1, aligner.find(weights))[there] for aligner in wanted]
        yield [torch.stack([found, targets[there]]).numpy() for found in chosen]


def attention(model: Transformer, sources: Tensor, lengths: Tensor, targets: Tensor) -> list[Tensor]:
    """Where each layer looks, by the teacher-forced pass.

    sources: int64 [sentences, source]; lengths: [sentences]; targets: int64 [sentences, target]
    Returns for each layer [sentences, heads, target + 1, source]: at place t, when target token t is to be chosen, and
    when token t - 1 has just been fed.
    """
    queries: list[Tensor] = []
    layers = [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]
    hooks = [layer.cross.query.register_forward_hook(lambda _, __, output: queries.append(output)) for layer in layers]
    encoded = model.encode(sources, lengths)
    start = torch.full((len(targets), 1), model.config.decoder_start_id)
    model.decode(encoded, lengths, torch.cat([start, targets], 1))
    for hook in hooks:
        hook.remove()
    seen = (torch.arange(sources.shape[1]) < lengths[:, None])[:, None, None, :]
    split = (len(targets), -1, model.config.decoder_heads, model.config.decoder_head_dim)
    found = []
    for query, key in zip(queries, model.cross_keys_values(encoded)[::2], strict=True):
        scores = query.view(split).transpose(1, 2) @ key.transpose(2, 3) * model.config.score_scale
        found.append(scores.masked_fill(~seen, -torch.inf).softmax(3))
    return found


def batches(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Pairs of about equal length together."""
    batch: list[Pair] = []
    longest = 0
    for pair in sorted(pairs, key=lambda pair: (len(pair[0]), len(pair[1]))):
        longest = max(longest, *map(len, pair))
        if batch and (len(batch) + 1) * longest > BATCH_TOKENS:
            yield batch
            batch, longest = [], max(map(len, pair))
        batch.append(pair)
    if batch:
        yield batch


def _pad(sentences: Sequence[TokenIds], filler: int) -> tuple[Tensor, Tensor]:
    """Token ids [sentences, longest], and lengths [sentences]."""
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    ids = torch.full((len(sentences), int(lengths.max())), filler)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence)] = torch.tensor(sentence)
    return ids, lengths
