"""How a state of the decoder looks at its source: scores, their softmax, and the mean of the hidden states by it.

In a package, one node of ONNX Runtime does the latter two for every score (`cached_attention`), with one head: a
score is the product of a query with keys, or it is a bias beside a query of zeros.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.architectures.recurrent.config import RecurrentConfig
from models.attention.nodes import LOWEST, additive_attention, takes_kernels

SMALLEST = 1e-6
"""Least length that a vector is divided by."""


class Comparison(NamedTuple):
    """What becomes scores: query . key * scale + bias."""

    query: Tensor
    """[rows, width]"""
    bias: Tensor | None
    """[rows, 1, 1, places]"""

    @property
    def told(self) -> Tensor:
        """What tells where a row looks: the query or, where they are no products, the scores [rows, places]."""
        return self.query if self.bias is None else self.bias[:, 0, 0]


Look = Callable[[Comparison], Tensor]
"""-> the mean of the hidden states by the softmax of the scores [rows, width]."""
Attend = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A state [rows, width] -> the mean of the hidden states by the softmax of its scores [rows, width], and what tells
where it looked, see `Comparison.told`."""


class SourceAttention(nn.Module):
    """The scores of `RecurrentConfig.score`, but for "none"."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.score, width = config.score, config.width
        self.window, self.scale = config.window, config.score_scale
        both = self.score in ("projected", "additive", "concat")
        if both or self.score == "general":
            self.key = nn.Linear(width, width, bias=False)
        if both:
            self.query = nn.Linear(width, width)
        if self.score in ("additive", "concat"):
            self.weight = nn.Parameter(torch.randn(width) * width**-0.5)
        if self.score == "location":
            self.places = nn.Linear(width, config.max_positions, bias=False)
        if self.score == "cosine":
            self.sharpness = nn.Parameter(torch.tensor([10.0]))

    def keys(self, hidden: Tensor) -> Tensor:
        """What states are compared with, computed once for a source [sentences, source, width]."""
        if self.score == "cosine":
            return _unit(hidden)
        if hasattr(self, "key"):
            projected: Tensor = self.key(hidden)
            return projected
        return hidden

    def compare(self, state: Tensor, keys: Tensor, places: Tensor, at: Tensor) -> Comparison:
        """state: [rows, width]; keys: [rows, 1, capacity, width]; places: [], those that any row has, for ONNX Runtime.

        at: the source's place that a window is around [rows]
        A bias is [rows, 1, 1, places] there, else [rows, 1, 1, capacity]: what is behind a row's own source is hidden
        by who looks.
        """
        compared = self._compare(state, keys, places)
        if self.window is None:
            return compared
        if compared.bias is None:
            products = compared.query.unsqueeze(1) * _first(keys.squeeze(1), places, keys.shape[2])
            scores = products.sum(2) * self.scale
        else:
            scores = compared.bias[:, 0, 0]
        of_source = _first(torch.arange(keys.shape[2], device=keys.device).unsqueeze(0), places, keys.shape[2])
        inside = (of_source - at.unsqueeze(1)).abs() <= self.window
        return Comparison(torch.zeros_like(state), torch.where(inside, scores, LOWEST)[:, None, None])

    def look(self, state: Tensor, source: Sequence[Tensor], last: Tensor) -> tuple[Tensor, Tensor]:
        """See `Attend`: of additive scores, by an operator of ours. source: keys, hidden states; last: [rows]."""
        keys, values = source
        return additive_attention(self.query(state), self.weight, keys, values, last)

    def _compare(self, state: Tensor, keys: Tensor, places: Tensor) -> Comparison:
        match self.score:
            case "cosine":
                return Comparison(_unit(state) * self.sharpness, None)
            case "projected":
                return Comparison(self.query(state), None)
            case "additive" | "concat":
                # W [s; h] of Luong et al. is W s + U h of Bahdanau et al.
                sums = self.query(state).unsqueeze(1) + _first(keys.squeeze(1), places, keys.shape[2])
                scores = (torch.tanh(sums) * self.weight).sum(2)
                return Comparison(torch.zeros_like(state), scores[:, None, None])
            case "location":
                scores = self.places(state)[:, : keys.shape[2]] if not takes_kernels() else self.places(state)
                scores = _first(scores, places, keys.shape[2])
                return Comparison(torch.zeros_like(state), scores[:, None, None])
        return Comparison(state, None)


def softmax_look(keys: Tensor, values: Tensor, lengths: Tensor, scale: float) -> Look:
    """As PyTorch computes it, over padded sources: the teacher-forced pass.

    keys, values: [sentences, 1, source, width]; lengths: [sentences]
    """
    seen = torch.arange(keys.shape[2], device=keys.device) < lengths.unsqueeze(1)

    def look(comparison: Comparison) -> Tensor:
        scores = torch.einsum("sw,spw->sp", comparison.query, keys.squeeze(1)) * scale
        if comparison.bias is not None:
            scores = scores + comparison.bias[:, 0, 0]
        weights = scores.masked_fill(~seen, -torch.inf).softmax(1)
        return torch.einsum("sp,spw->sw", weights, values.squeeze(1))

    return look


def _first(x: Tensor, places: Tensor, capacity: int) -> Tensor:
    """The first places of x, up to `capacity`: what the node of ONNX Runtime wants. Elsewhere, all of them."""
    if not takes_kernels():
        return x
    start, axis = (torch.full((1,), value, dtype=torch.int32) for value in (0, 1))
    shape = (x.shape[0], capacity, *x.shape[2:])
    first: Tensor = torch.onnx.ops.symbolic(
        "Slice", [x, start, places.unsqueeze(0), axis], version=13, dtype=x.dtype, shape=shape
    )
    return first


def _unit(x: Tensor) -> Tensor:
    """Of length 1, along the last axis."""
    return F.normalize(x, dim=-1, eps=SMALLEST)
