"""What becomes of the hidden states of a source: pooling, dimensions, norm, and the numbers it is sent in.

The order is that of sentence-transformers: poolings, the model's dense layers, cut to `dimensions` (Matryoshka
representations, Kusupati et al. 2022), norm, numbers. All of it concerns one source alone, so that no other one decides
about its bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from models.config import Frozen
from models.encoding.dense import Dense, DenseSpec


class Pooling(StrEnum):
    """What makes one vector of those of all tokens. See `dragoman.v1.Pooling`, which lacks CONCAT."""

    NONE = "none"
    CLS = "cls"
    LAST = "last"
    MEAN = "mean"
    MAX = "max"
    SUM = "sum"
    SUM_SQRT = "sum_sqrt"
    WEIGHTED_MEAN = "weighted_mean"
    """A mean in which the first token counts once, the second twice, and so on (Muennighoff 2022, "SGPT")."""
    CONCAT = "concat"
    """One after the other, the last at the end. Before a text with fewer tokens than it has room for are zeros. Only a
    layer that was trained behind it can take it: it is of heads alone."""
    ATTENTION = "attention"
    """A mean whose weights are the softmax of a learnt score of each (Lin et al. 2017, "A Structured Self-attentive
    Sentence Embedding", with one hop and no layer before it)."""


class Numbers(StrEnum):
    """What the values of a vector are sent as. See `dragoman.v1.EmbeddingType`."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    BINARY = "binary"

    @property
    def bits(self) -> int:
        """Of one value."""
        return {"float32": 32, "float16": 16, "int8": 8, "binary": 1}[self]


def weighted(hidden: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of hidden states [tokens, width] with these weights [tokens, 1]: [width]."""
    mean: NDArray[np.float32] = (weights / weights.sum() * hidden).sum(axis=0)
    return mean


POOLED: dict[Pooling, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    Pooling.CLS: lambda hidden: hidden[0],
    Pooling.LAST: lambda hidden: hidden[-1],
    Pooling.MEAN: lambda hidden: hidden.mean(axis=0),
    Pooling.MAX: lambda hidden: hidden.max(axis=0),
    Pooling.SUM: lambda hidden: hidden.sum(axis=0),
    Pooling.SUM_SQRT: lambda hidden: hidden.sum(axis=0) / np.float32(np.sqrt(len(hidden))),
    Pooling.WEIGHTED_MEAN: lambda hidden: weighted(hidden, np.arange(1, len(hidden) + 1, dtype=np.float32)[:, None]),
}
"""Hidden states [tokens, width] -> a vector [width]."""


class EncodingDefaults(Frozen):
    """How a model's sources are encoded where a request does not say."""

    poolings: tuple[Pooling, ...] = (Pooling.MEAN,)
    dense: tuple[DenseSpec, ...] = ()
    """What the vectors of these poolings go through; those of others do not."""
    scores: DenseSpec | None = None
    """Of the pooling "attention", from a hidden state to its score. None: the model has no such pooling."""
    dimensions: int | None = Field(default=None, gt=0)
    """The first so many values of a vector. None: all."""
    normalize: bool = False
    max_tokens: int | None = Field(default=None, gt=1)
    """Most tokens of a text, where the model was trained with fewer than it has positions."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """What may be put before a text, by the name that requests use."""
    prompt: str | None = None
    """The name of the one that is put there where a request does not say."""

    @model_validator(mode="after")
    def _consistent(self) -> "EncodingDefaults":
        if fault := conflict(self.poolings):
            raise ValueError(f"poolings: {fault}")
        if Pooling.CONCAT in self.poolings:
            raise ValueError("poolings: concat is of heads that give labels")
        if Pooling.ATTENTION in self.poolings and self.scores is None:
            raise ValueError("poolings: attention has scores, and there are none")
        if self.dense and Pooling.NONE in self.poolings:
            raise ValueError("dense layers are of pooled vectors, and poolings is none")
        for before, after in pairwise(self.dense):
            if before.outputs != after.inputs:
                raise ValueError(f"{after.file} takes {after.inputs} values; {before.file} gives {before.outputs}")
        if self.prompt is not None and self.prompt not in self.prompts:
            raise ValueError(f"prompt is {self.prompt!r}; there are {', '.join(self.prompts) or 'none'}")
        return self

    @property
    def layers(self) -> tuple[DenseSpec, ...]:
        """All that have numbers."""
        return (*self.dense, *([] if self.scores is None else [self.scores]))

    @property
    def offered(self) -> tuple[Pooling, ...]:
        """What requests may choose."""
        lacking = {Pooling.CONCAT, *([Pooling.ATTENTION] if self.scores is None else [])}
        return tuple(pooling for pooling in Pooling if pooling not in lacking)

    def fault(self, width: int) -> str:
        """Why it cannot be how hidden states of this width are encoded. Empty: it can."""
        pooled = len(self.poolings) * width
        if self.dense and self.dense[0].inputs != pooled:
            return f"{self.dense[0].file} takes {self.dense[0].inputs} values; the model's poolings give {pooled}"
        values = self.dense[-1].outputs if self.dense else pooled
        if self.dimensions is not None and self.dimensions > values:
            return f"dimensions is {self.dimensions}; a vector has {values} values"
        return "" if self.scores is None else scores_fault(self.scores, width)


@dataclass(frozen=True, slots=True)
class Vectors:
    """What a source became."""

    data: NDArray[np.generic]
    """In the numbers that were asked for; the last axis of BINARY is eight values a byte, most significant bit first.
    [values], or [tokens, values] of Pooling.NONE."""
    shape: tuple[int, ...]
    """[values] or [tokens, values], also of BINARY."""
    scales: NDArray[np.float32] | None = None
    """Of INT8: what the numbers of each vector are multiplied with [vectors]."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a source is encoded."""

    poolings: tuple[Pooling, ...] = (Pooling.MEAN,)
    """Several: their vectors one after the other, in this order."""
    dimensions: int | None = None
    normalize: bool = False
    numbers: Numbers = Numbers.FLOAT32
    dense: tuple[Dense, ...] = ()
    scores: Dense | None = None
    """Of ATTENTION: what scores a hidden state [1, width + 1]."""

    def most_values(self, width: int) -> int:
        """Of a vector, before it is cut to `dimensions`."""
        return len(self.dense[-1].table) if self.dense else len(self.poolings) * width

    def shape(self, tokens: int, width: int) -> tuple[int, ...]:
        """Of what becomes of a source."""
        most = self.most_values(width)
        values = min(self.dimensions or most, most)
        return (tokens, values) if self.poolings == (Pooling.NONE,) else (values,)

    def size_bytes(self, tokens: int, width: int) -> int:
        """Of what becomes of a source, without its scales."""
        *vectors, values = self.shape(tokens, width)
        return prod(vectors) * -(-values * self.numbers.bits // 8)

    def of(self, hidden: NDArray[np.float32]) -> Vectors:
        """Of the last hidden states of a source [tokens, width]. Raises FloatingPointError if a value is not finite."""
        if self.poolings == (Pooling.NONE,):
            pooled = hidden
        else:
            pooled = np.concatenate([self._pooled(pooling, hidden) for pooling in self.poolings])
        for dense in self.dense:
            pooled = dense.of(pooled)
        values: NDArray[np.floating] = pooled[..., : self.dimensions]
        if self.normalize:
            norms = np.linalg.norm(values, axis=-1, keepdims=True)
            values = values / np.where(norms == 0.0, np.float32(1.0), norms)
        if not np.isfinite(values).all():
            raise FloatingPointError("a value is not finite")
        return _in_numbers(np.ascontiguousarray(values, np.float32), self.numbers)

    def _pooled(self, pooling: Pooling, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hidden states [tokens, width] -> a vector."""
        if pooling is Pooling.CONCAT:
            room = self.dense[0].table.shape[1] - 1
            return np.pad(hidden.ravel(), (room - hidden.size, 0))
        if pooling is Pooling.ATTENTION:
            assert self.scores is not None
            scores = self.scores.of(hidden)
            return weighted(hidden, np.exp(scores - scores.max()))
        return POOLED[pooling](hidden)


def scores_fault(scores: DenseSpec, width: int) -> str:
    """Why it scores no hidden states of this width. Empty: it does."""
    if (found := [scores.outputs, scores.inputs]) == [1, width]:
        return ""
    return f"{scores.file} has the weights {found}; what scores a hidden state has [1, {width}]"


def conflict(poolings: tuple[Pooling, ...]) -> str:
    """Why these poolings cannot be asked for together. Empty: they can."""
    if not poolings:
        return "there is none"
    if len(set(poolings)) < len(poolings):
        return "one of them occurs twice"
    if Pooling.NONE in poolings and len(poolings) > 1:
        return "none gives a vector for every token, and goes with no other"
    if Pooling.CONCAT in poolings and len(poolings) > 1:
        return "concat takes all the room of the layer behind it, and goes with no other"
    return ""


def _in_numbers(values: NDArray[np.float32], numbers: Numbers) -> Vectors:
    """float32 values in what they are sent as. Raises FloatingPointError where float16 has no room for one."""
    if numbers is Numbers.FLOAT16:
        with np.errstate(over="raise"):
            return Vectors(values.astype(np.float16), values.shape)
    if numbers is Numbers.BINARY:
        return Vectors(np.packbits(values > 0, axis=-1), values.shape)
    if numbers is Numbers.INT8:
        scales: NDArray[np.float32] = (np.abs(values).max(axis=-1, keepdims=True) / 127).astype(np.float32)
        scales[scales == 0.0] = 1.0
        return Vectors(np.rint(values / scales).astype(np.int8), values.shape, scales.reshape(-1))
    return Vectors(values, values.shape)
