"""Attention. Where ONNX Runtime has a better kernel than what the exporter makes of plain PyTorch, both stand here.

Each function's PyTorch body is its definition. While torch.onnx.export traces, one ONNX Runtime node takes its place
(`models.attention.nodes`), so that eager and exported models are the same code.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from models.attention.nodes import PLAIN_SCORING, Scoring, group_query_attention, multi_head_attention, takes_kernels

_noted: "ContextVar[list[Compared] | None]" = ContextVar("noted", default=None)


class Packing(NamedTuple):
    """Where sources lie one after another, without padding."""

    padded: Tensor
    """The token of each place of a padded batch; of padding, any [sentences, source]."""
    places: Tensor
    """The place of each token, counted through that batch [tokens]."""


class Compared(NamedTuple):
    """The queries and keys of an attention, which say where it looks."""

    query: Tensor
    """[sentences, queries, inner]"""
    key: Tensor
    """[sentences, heads, keys, head_dim], or [sentences, keys, inner]"""
    lengths: Tensor | None
    """Keys before the padding [sentences]. None: every token of a target looks at itself and those before it."""
    heads: int
    scoring: Scoring
    goes_on: bool = False
    """Behind those keys are a target's. Every token looks at itself and those before it, too."""

    def weights(self) -> Tensor:
        """How much every query looks at every key, fp32 [sentences, heads, queries, keys]: 0 at what is not seen."""
        query = _split_heads(self.query, self.heads)
        key = _split_heads(self.key, self.heads) if self.key.dim() == 3 else self.key
        if self.lengths is None:
            seen = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=key.device).tril()
            return _look(query, key, seen, self.scoring).float()
        if self.goes_on:
            return _look(query, key, _prefix_mask(self.lengths, key.shape[2]), self.scoring).float()
        seen = torch.arange(key.shape[2], device=key.device) < self.lengths.unsqueeze(1)
        return _look(query, key, seen[:, None, None, :], self.scoring).float()


@contextmanager
def compared() -> Iterator[list[Compared]]:
    """While it lasts, notes what is compared, layer by layer: in the source, in the target, and by it with the source.

    Not where sources are packed.
    """
    noted: list[Compared] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def self_attention(
    qkv: Tensor, lengths: Tensor, heads: int, packing: Packing | None = None, scoring: Scoring = PLAIN_SCORING
) -> Tensor:
    """Every source token attends to all tokens of its source.

    qkv: queries, keys and values, joined [sentences * source, 3 * inner], or of packed sources [tokens, 3 * inner]
    lengths: tokens of each source before the padding [sentences]
    Returns [sentences * source, inner], or [tokens, inner].
    """
    if packing is not None:
        attended = self_attention(qkv.index_select(0, packing.padded.flatten()), lengths, heads, scoring=scoring)
        return attended.index_select(0, packing.places)
    width = qkv.shape[1] // 3
    qkv = qkv.view(lengths.shape[0], -1, 3 * width)
    query, key, value = qkv.split(width, dim=2)
    _note(query, key, lengths, heads, scoring)
    if takes_kernels():
        return multi_head_attention(query, key, value, lengths, heads, scoring).view(-1, width)
    seen = torch.arange(qkv.shape[1], device=qkv.device) < lengths.unsqueeze(1)
    return _attend(query, key, value, seen[:, None, None, :], heads, scoring).flatten(0, 1)


def causal_attention(qkv: Tensor, sentences: int, heads: int, scoring: Scoring = PLAIN_SCORING) -> Tensor:
    """Every target token attends to itself and those before it: the teacher-forced pass.

    qkv: [sentences * target, 3 * inner]. Returns [sentences * target, inner].
    """
    width = qkv.shape[1] // 3
    query, key, value = qkv.view(sentences, -1, 3 * width).split(width, dim=2)
    _note(query, key, None, heads, scoring)
    if takes_kernels():
        return multi_head_attention(query, key, value, None, heads, scoring, causal=True).view(-1, width)
    target = query.shape[1]
    seen = torch.ones(target, target, dtype=torch.bool, device=qkv.device).tril()
    return _attend(query, key, value, seen, heads, scoring).flatten(0, 1)


def prefix_attention(qkv: Tensor, lengths: Tensor, heads: int) -> Tensor:
    """Every token of a source and of the target behind it attends to the source, itself and those before it.

    qkv: [sentences * tokens, 3 * inner]; lengths: of the sources [sentences]. Returns [sentences * tokens, inner].
    """
    query, key, value = qkv.view(lengths.shape[0], -1, qkv.shape[1]).chunk(3, dim=2)
    _note(query, key, lengths, heads, PLAIN_SCORING, goes_on=True)
    return _attend(query, key, value, _prefix_mask(lengths, key.shape[1]), heads, PLAIN_SCORING).flatten(0, 1)


def continued_attention(qkv: Tensor, past: Sequence[Tensor], lengths: Tensor, heads: int) -> Tensor:
    """Every target token attends to so many tokens of its source, itself and those before it: teacher-forced.

    qkv: [sentences * target, 3 * inner]; lengths: [sentences]
    past: keys and values of the source [sentences, heads, source, head_dim]
    Returns [sentences * target, inner]. No graph has it.
    """
    sentences, _, source, _ = past[0].shape
    query, *new = (_split_heads(part, heads) for part in qkv.view(sentences, -1, qkv.shape[1]).chunk(3, dim=2))
    keys, values = (torch.cat([before, part], 2) for before, part in zip(past, new, strict=True))
    target = query.shape[2]
    of_source = torch.arange(source, device=qkv.device) < lengths.unsqueeze(1)
    of_target = torch.ones(target, target, dtype=torch.bool, device=qkv.device).tril()
    sides = of_source[:, None].expand(-1, target, -1), of_target.expand(sentences, -1, -1)
    seen = torch.cat(sides, 2).unsqueeze(1)
    return _weigh(query, keys, values, seen, PLAIN_SCORING).transpose(1, 2).flatten(2).flatten(0, 1)


def cross_attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, heads: int, scoring: Scoring = PLAIN_SCORING
) -> Tensor:
    """Every target token attends to its source: the teacher-forced pass.

    query: [sentences * target, inner]; key, value: [sentences, heads, source, head_dim]; lengths: [sentences]
    Returns [sentences * target, inner].
    """
    sentences, _, source, _ = key.shape
    query = query.view(sentences, -1, query.shape[1])
    _note(query, key, lengths, heads, scoring)
    if takes_kernels():
        return multi_head_attention(query, key, value, lengths, heads, scoring).flatten(0, 1)
    query = _split_heads(query, heads)
    seen = torch.arange(source, device=key.device) < lengths.unsqueeze(1)
    return _weigh(query, key, value, seen[:, None, None, :], scoring).transpose(1, 2).flatten(2).flatten(0, 1)


def cached_attention(
    query: Tensor,
    new: Sequence[Tensor] | None,
    past: Sequence[Tensor],
    positions: Tensor,
    total: Tensor,
    heads: int,
    scoring: Scoring = PLAIN_SCORING,
) -> tuple[Tensor, Tensor, Tensor]:
    """One query a row: row r puts its new key and value at positions[r] and attends to 0..positions[r].

    query: [rows, inner], or queries, keys and values packed [rows, 3 * inner] where `new` is None
    new: key and value of each row [rows, 1, inner]
    past: cached keys and values [rows, heads, capacity, head_dim]
    positions: int32 [rows]; total: int32 [], max(positions) + 1, read by ONNX Runtime only
    scoring: its bias is [rows, heads, 1, total] to a node of ONNX Runtime, else [rows, heads, 1, capacity]
    Returns the attended values [rows, inner] and the keys and values with the new ones in place.
    """
    if takes_kernels():
        return group_query_attention(query, new, past, positions, total, heads, scoring)
    query = query.unsqueeze(1)
    query, *new_pair = query.chunk(3, dim=2) if new is None else (query, *new)
    at = positions.long().view(-1, 1, 1, 1)
    keys, values = (
        cached.scatter(2, at.expand(-1, heads, 1, cached.shape[3]), _split_heads(fresh, heads))
        for cached, fresh in zip(past, new_pair, strict=True)
    )
    seen = torch.arange(keys.shape[2], device=keys.device) <= at
    return _weigh(_split_heads(query, heads), keys, values, seen, scoring).flatten(1), keys, values


def _attend(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, heads: int, scoring: Scoring) -> Tensor:
    """query, key, value: [sentences, length, inner]; seen: bool, broadcast to [sentences, heads, length, length]."""
    query, key, value = (_split_heads(x, heads) for x in (query, key, value))
    return _weigh(query, key, value, seen, scoring).transpose(1, 2).flatten(2)


def _weigh(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, scoring: Scoring) -> Tensor:
    """softmax(query key^T scale + bias) value, over the keys that are seen.

    query: [sentences, heads, queries, head_dim]; key, value: [sentences, heads, keys, head_dim]
    seen: bool, broadcast to [sentences, heads, queries, keys]
    """
    if torch.onnx.is_in_onnx_export():  # what follows is exported as thrice the nodes, half of them on shapes
        return _look(query, key, seen, scoring) @ value
    if query.requires_grad and query.dtype is torch.bfloat16 and query.device.type == "cpu":
        # Its gradient takes PyTorch's kernel for CPUs eight times as long in bf16.
        with torch.autocast("cpu", enabled=False):
            bias = None if scoring.bias is None else scoring.bias.float()
            attended = _weigh(query.float(), key.float(), value.float(), seen, Scoring(scoring.scale, bias))
        return attended.to(query.dtype)
    mask = seen if scoring.bias is None else scoring.bias.where(seen, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scoring.scale)


def _look(query: Tensor, key: Tensor, seen: Tensor, scoring: Scoring) -> Tensor:
    """softmax(query key^T scale + bias) over the keys that are seen. Shapes as in `_weigh`."""
    scale = query.shape[3] ** -0.5 if scoring.scale is None else scoring.scale
    scores = (query if scale == 1.0 else query * scale) @ key.transpose(2, 3)
    scores = scores if scoring.bias is None else scores + scoring.bias
    return torch.where(seen, scores, -torch.inf).softmax(3)


def _prefix_mask(lengths: Tensor, tokens: int) -> Tensor:
    """What each of so many tokens sees of them, its source being as long as that [sentences, 1, tokens, tokens]."""
    of_source = torch.arange(tokens, device=lengths.device) < lengths.unsqueeze(1)
    of_target = torch.ones(tokens, tokens, dtype=torch.bool, device=lengths.device).tril()
    return of_source[:, None, None].logical_or(of_target)


def _note(
    query: Tensor, key: Tensor, lengths: Tensor | None, heads: int, scoring: Scoring, goes_on: bool = False
) -> None:
    """query: [sentences, queries, inner]; key: [sentences, keys, inner], or [sentences, heads, keys, head_dim]."""
    noted = _noted.get()
    if noted is not None:
        noted.append(Compared(query, key, lengths, heads, scoring, goes_on))


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """[sentences, length, inner] -> [sentences, heads, length, head_dim]."""
    split: Tensor = x.unflatten(2, (heads, -1))
    return split.transpose(1, 2)
