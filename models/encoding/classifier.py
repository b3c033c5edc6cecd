"""A head that gives labels: layers behind the pooled hidden states of a text, or behind each of its tokens'."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from models.config import Frozen
from models.encoding.dense import Dense, DenseSpec
from models.encoding.encoding import Encoding, Pooling, Vectors, conflict, scores_fault

OUTSIDE = "O"
"""The label of tokens that are part of no entity."""


class ClassifierSpec(Frozen):
    """What a package says of it."""

    of: Literal["text", "tokens"]
    """What has labels."""
    poolings: tuple[Pooling, ...] = (Pooling.CLS,)
    """Of texts: what the layers get, the vectors of several one after the other. Tokens are not pooled."""
    scores: DenseSpec | None = None
    """Of the pooling "attention": from a hidden state to its score."""
    dense: tuple[DenseSpec, ...] = Field(min_length=1)
    """From hidden states to a logit for each label."""
    labels: tuple[str, ...] = Field(min_length=1)
    independent: bool = False
    """Any number of labels may hold at once: the probability of each is the sigmoid of its logit, not a softmax."""

    @model_validator(mode="after")
    def _consistent(self) -> "ClassifierSpec":
        if fault := conflict(self.poolings):
            raise ValueError(f"poolings: {fault}")
        if (self.scores is not None) != (Pooling.ATTENTION in self.poolings):
            raise ValueError(f"scores are {self.scores} and poolings {', '.join(self.poolings)}; attention has scores")
        for before, after in pairwise(self.dense):
            if before.outputs != after.inputs:
                raise ValueError(f"{after.file} takes {after.inputs} values; {before.file} gives {before.outputs}")
        if len(self.labels) != self.dense[-1].outputs:
            last = self.dense[-1]
            raise ValueError(f"{last.file} gives {last.outputs} values; there are {len(self.labels)} labels")
        return self

    @property
    def layers(self) -> tuple[DenseSpec, ...]:
        """All that have numbers."""
        return (*self.dense, *([] if self.scores is None else [self.scores]))

    def fault(self, width: int, most_tokens: int) -> str:
        """Why it cannot stand behind hidden states of this width, of at most so many tokens. Empty: it can."""
        count = 1 if self.of == "tokens" else most_tokens if Pooling.CONCAT in self.poolings else len(self.poolings)
        if self.dense[0].inputs != count * width:
            return f"{self.dense[0].file} takes {self.dense[0].inputs} values; the model gives {count * width}"
        return "" if self.scores is None else scores_fault(self.scores, width)


@dataclass(frozen=True, slots=True)
class Label:
    """One that something may have."""

    name: str
    probability: float


@dataclass(frozen=True, slots=True)
class LabelledSpan:
    """A part of a text, and what it may be."""

    begin: int
    """In characters, as `end`, which is the place after its last one."""
    end: int
    labels: tuple[Label, ...]
    """The most probable first."""


@dataclass(frozen=True, slots=True, eq=False)
class Classifier:
    """A head with its numbers. It is equal to itself alone."""

    spec: ClassifierSpec
    layers: tuple[Dense, ...]
    """As the spec's."""

    def save(self, folder: Path) -> None:
        """Writes its numbers."""
        for spec, dense in zip(self.spec.layers, self.layers, strict=True):
            dense.save(folder, spec.file)

    @property
    def encoding(self) -> Encoding:
        """What gives its logits: [labels], or [tokens, labels]."""
        dense, scores = self.layers[: len(self.spec.dense)], self.layers[len(self.spec.dense) :]
        if self.spec.of == "tokens":
            return Encoding((Pooling.NONE,), dense=dense)
        return Encoding(self.spec.poolings, dense=dense, scores=scores[0] if scores else None)

    def probabilities(self, logits: Vectors) -> NDArray[np.float32]:
        """Of every label [labels], or of those of every token [tokens, labels]."""
        values = logits.data.astype(np.float32)
        if self.spec.independent:
            odds = np.exp(-np.abs(values))  # of the less probable side, which cannot overflow
            return np.where(values >= 0, 1 / (1 + odds), odds / (1 + odds))
        weights = np.exp(values - values.max(axis=-1, keepdims=True))
        shares: NDArray[np.float32] = weights / weights.sum(axis=-1, keepdims=True)
        return shares

    def best(self, probabilities: NDArray[np.float32], most: int) -> tuple[Label, ...]:
        """The most probable labels [labels], in this order; of equal ones that with the smaller number first."""
        order = np.argsort(-probabilities, kind="stable")[:most]
        return tuple(Label(self.spec.labels[index], float(probabilities[index])) for index in order)


def entities(tokens: Iterable[LabelledSpan]) -> Iterator[LabelledSpan]:
    """Neighbours of one kind as one span, by the first label of each, as "simple" in transformers has it.

    "B-" begins one; any other label goes on with that of its neighbour. What is OUTSIDE is left out.
    """
    group: list[LabelledSpan] = []
    for token in tokens:
        name = token.labels[0].name
        if group and (name.startswith("B-") or _kind(name) != _kind(group[0].labels[0].name)):
            yield from _joined(group)
            group = []
        group.append(token)
    yield from _joined(group)


def _joined(group: Sequence[LabelledSpan]) -> Iterator[LabelledSpan]:
    if group and (kind := _kind(group[0].labels[0].name)) != OUTSIDE:
        mean = sum(token.labels[0].probability for token in group) / len(group)
        yield LabelledSpan(group[0].begin, group[-1].end, (Label(kind, mean),))


def _kind(name: str) -> str:
    return name[2:] if name.startswith(("B-", "I-")) else name
