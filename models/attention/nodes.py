"""The nodes of ONNX Runtime that stand for attention while torch.onnx.export traces, see `models.attention.attention`.

Not inside `plain`, for devices that lack these kernels: GroupQueryAttention knows no fp32 on CUDA.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

HEAD_DIM_MULTIPLE = 8
"""GroupQueryAttention takes heads whose size is a multiple of this."""

LOWEST = torch.finfo(torch.float32).min
"""What ONNX Runtime adds to a score to hide it: its own -10,000 is less than some scores of real models."""

Attributes = dict[str, int | float | str | bool | Sequence[int] | Sequence[float] | Sequence[str] | Sequence[bool]]
"""Of a node, as torch.onnx.ops has them."""

_fused = ContextVar("fused", default=True)
_ours = ContextVar("ours", default=False)


def plain() -> AbstractContextManager[None]:
    """While it lasts, torch.onnx.export traces attention as standard operators."""
    return _while(_fused, False)


def ours() -> AbstractContextManager[None]:
    """While it lasts, torch.onnx.export traces operators of ours (kernels/README.md) where there are some."""
    return _while(_ours, True)


@contextmanager
def _while(setting: ContextVar[bool], value: bool) -> Iterator[None]:
    token = setting.set(value)
    try:
        yield
    finally:
        setting.reset(token)


def takes_ours() -> bool:
    """Whether a node of ours is to stand where the body would."""
    return torch.onnx.is_in_onnx_export() and _ours.get()


def takes_kernels() -> bool:
    """Whether a node of ONNX Runtime is to stand where the body would."""
    return torch.onnx.is_in_onnx_export() and _fused.get()


class Scoring(NamedTuple):
    """How a query's product with a key becomes a score."""

    scale: float | None = None
    """What it is multiplied by. None: 1 / sqrt(head_dim)."""
    bias: Tensor | None = None
    """What is added, broadcast to [sentences, heads, queries, keys]."""

    @property
    def attributes(self) -> Attributes:
        """Of ONNX Runtime's nodes."""
        return {} if self.scale is None else {"scale": self.scale}


PLAIN_SCORING = Scoring()


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    heads: int,
    scoring: Scoring,
    causal: bool = False,
) -> Tensor:
    """lengths: of the keys before the padding, if there is any."""
    attended: Tensor = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        [query, key, value, None, lengths, *(() if scoring.bias is None else (scoring.bias,))],
        scoring.attributes
        | {"num_heads": heads, "mask_filter_value": LOWEST}
        | ({"unidirectional": 1} if causal else {}),
        version=1,
        dtype=query.dtype,
        shape=query.shape,
    )
    return attended


def gated_unit(given: Tensor, kept: Tensor, state: Tensor) -> Tensor:
    """As `models.architectures.recurrent.cells` says."""
    after: Tensor = torch.onnx.ops.symbolic(
        "dragoman::GatedUnit", [given, kept, state], version=1, dtype=state.dtype, shape=state.shape
    )
    return after


def additive_attention(
    query: Tensor, weight: Tensor, keys: Tensor, values: Tensor, last: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean of a row's values by the softmax of weight . tanh(query + key), and those scores [rows, places].

    keys, values: [rows, 1, capacity, width]; last: of a row's places [rows]
    """
    found, scores = torch.onnx.ops.symbolic_multi_out(
        "dragoman::AdditiveAttention",
        [query, weight, keys, values, last],
        version=1,
        dtypes=[query.dtype, query.dtype],
        shapes=[query.shape, (query.shape[0], keys.shape[2])],
    )
    return found, scores


def top_tokens(logits: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """As `models.best_tokens.best_tokens` says."""
    shape = logits.shape[0], ranks.shape[0]
    ids, log_probs = torch.onnx.ops.symbolic_multi_out(
        "dragoman::TopTokens", [logits, ranks], version=1, dtypes=[torch.int64, logits.dtype], shapes=[shape, shape]
    )
    return ids, log_probs


def group_query_attention(
    query: Tensor,
    new: Sequence[Tensor] | None,
    past: Sequence[Tensor],
    positions: Tensor,
    total: Tensor,
    heads: int,
    scoring: Scoring,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `cached_attention` says."""
    rows = positions.shape[0]
    bias = () if scoring.bias is None else (None, None, None, scoring.bias)
    width = heads * past[0].shape[3]
    attended, keys, values = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        [query.unsqueeze(1), *(new or (None, None)), *past, positions, total, *bias],
        scoring.attributes | {"num_heads": heads, "kv_num_heads": heads},
        version=1,
        dtypes=[query.dtype, past[0].dtype, past[1].dtype],
        shapes=[(rows, 1, width), past[0].shape, past[1].shape],
    )
    return attended.squeeze(1), keys, values
