"""What operators of a device step compute, in numpy: ours, and those of ONNX Runtime that the onnx library lacks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

Numbers = NDArray[Any]


def attend(query: Numbers, keys: Numbers, values: Numbers, scale: float) -> Numbers:
    """query [heads, head_dim]; keys, values [heads, places, head_dim] -> [heads * head_dim], computed in fp32."""
    query, keys, values = (given.astype(np.float32) for given in (query, keys, values))
    scores = np.einsum("hd,hpd->hp", query, keys) * (scale or query.shape[1] ** -0.5)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    found: Numbers = np.einsum("hp,hpd->hd", weights / weights.sum(1, keepdims=True), values).reshape(-1)
    return found


class HistoryAttention(OpRun):
    """Self-attention of rows whose earlier positions lie in many slots."""

    op_domain = "dragoman"

    def _run(self, qkv, keys, values, positions, slots, history, scale=None):  # type: ignore[no-untyped-def]
        keys, values, attended = keys.copy(), values.copy(), []
        parts = qkv.reshape(len(qkv), 3, *keys.shape[1::2])
        for (query, key, value), position, slot in zip(parts, positions, slots, strict=True):
            keys[slot, :, position], values[slot, :, position] = key, value
            where = [*history[slot, :position], slot]
            seen_keys, seen_values = (memory[where, :, range(position + 1)].swapaxes(0, 1) for memory in (keys, values))
            attended.append(attend(query, seen_keys, seen_values, scale or 0.0))
        return np.stack(attended).astype(qkv.dtype), keys, values


class SlotAttention(OpRun):
    """Attention to the first places of a slot."""

    op_domain = "dragoman"

    def _run(self, query, keys, values, last, slots, scale=None):  # type: ignore[no-untyped-def]
        queries = query.reshape(len(query), *keys.shape[1::2])
        rows = [
            attend(one, keys[slot, :, : end + 1], values[slot, :, : end + 1], scale or 0.0)
            for one, end, slot in zip(queries, last, slots, strict=True)
        ]
        return (np.stack(rows).astype(query.dtype),)


class PackedAttention(OpRun):
    """Attention of tokens to those of their own source."""

    op_domain = "dragoman"

    def _run(self, qkv, firsts, lengths, heads=None, scale=None):  # type: ignore[no-untyped-def]
        queries, keys, values = qkv.reshape(len(qkv), 3, heads, -1).transpose(1, 2, 0, 3)
        rows = []
        for token, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
            own = slice(first, first + length)
            rows.append(attend(queries[:, token], keys[:, own], values[:, own], scale or 0.0))
        return (np.stack(rows).astype(qkv.dtype),)


class BestLogits(OpRun):
    """Candidates, log-probabilities and logits, and nothing to compute in."""

    op_domain = "dragoman"

    def _run(self, hidden, products, weight, bias, ranks):  # type: ignore[no-untyped-def]
        logits = products + bias
        rows = logits.astype(np.float32)
        rows -= np.log(np.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) + rows.max(1, keepdims=True)
        ids = np.argsort(-rows, axis=1, kind="stable")[:, : len(ranks)]
        return ids, np.take_along_axis(rows, ids, 1), logits, np.zeros(0, np.uint8)


class RowLinear(OpRun):
    """A linear layer with what stands before and behind it."""

    op_domain = "dragoman"

    def _run(  # type: ignore[no-untyped-def]
        self, x, weight, bias=None, x_scale=None, x_shift=None, residual=None, by=None, shift=None, **attributes
    ):
        epsilon, activation = attributes["epsilon"], ACTIVATIONS[attributes["activation"]]
        y = normed(x, x_scale, x_shift, epsilon).astype(np.float32) @ weight.astype(np.float32).T
        y = activation(y if bias is None else y + bias)
        if residual is not None:
            y = y + normed(residual, by, shift, epsilon)
        return (y.astype(x.dtype),)


class SkipLayerNormalization(OpRun):
    """The norm of a sum, and the sum."""

    op_domain = "com.microsoft"

    def _run(self, x, skip, gamma, beta, bias=None, epsilon=None):  # type: ignore[no-untyped-def]
        total = x + skip if bias is None else x + skip + bias
        rows = total.astype(np.float32)
        rows = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + epsilon)
        normed = (rows * gamma + beta).astype(x.dtype)
        return (normed,) if len(self.onnx_node.output) == 1 else (normed, rows, rows, total)


class EmbedTokens(OpRun):
    """Tokens at their positions."""

    op_domain = "dragoman"

    def _run(self, ids, positions, tokens, places=None, scale=None):  # type: ignore[no-untyped-def]
        embedded = (tokens[ids] * np.float32(scale)).astype(tokens.dtype)
        return (embedded if places is None else embedded + places[positions],)


ACTIVATIONS: dict[str, Callable[[Numbers], Numbers]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "swish": lambda x: x / (1 + np.exp(-x)),
}


def normed(x: Numbers, scale: Numbers | None, shift: Numbers | None, epsilon: float) -> Numbers:
    """The norm of each row, or the row itself where it has none."""
    if scale is None:
        return x
    rows = x.astype(np.float32)
    rows = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + epsilon)
    found: Numbers = (rows * scale + shift).astype(x.dtype)
    return found


OPERATORS = [
    HistoryAttention,
    SlotAttention,
    PackedAttention,
    BestLogits,
    RowLinear,
    EmbedTokens,
    SkipLayerNormalization,
]
