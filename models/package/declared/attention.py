"""Outputs of graphs that tell where tokens look."""

from itertools import chain

from pydantic import Field, model_validator

from models.config import Frozen


class CrossQuery(Frozen):
    """A decoder output that tells where rows look: the last layer's queries to the source [rows, heads * head_dim]."""

    name: str
    keys: str
    """The cache tensor [rows, heads, source, head_dim] that they are compared with."""
    scale: float
    """Of a query's product with a key, before the softmax."""


class SelfAttention(Frozen):
    """Outputs that tell where tokens look among each other, of every layer.

    They are inner values: a run that does not fetch them pays nothing for them.
    """

    layers: tuple[tuple[str, str], ...] = Field(min_length=1)
    """Queries and keys, both fp32 [texts, tokens, heads * head_dim]"""
    biases: tuple[str, ...] = ()
    """What is added to the scores, fp32 [1, heads, tokens, tokens]: one of every layer, one of all, or none."""
    heads: int = Field(gt=0)
    scale: float
    """Of a query's product with a key, before the softmax."""
    causal: bool = False
    """A token looks at itself and those before it, not at all."""

    @property
    def outputs(self) -> list[str]:
        """All of them."""
        return [*chain.from_iterable(self.layers), *self.biases]

    @model_validator(mode="after")
    def _of_layers(self) -> "SelfAttention":
        if len(self.biases) not in {0, 1, len(self.layers)}:
            raise ValueError(
                f"there are {len(self.biases)} biases; {len(self.layers)} layers have one each, one or none"
            )
        return self


class TargetAttention(Frozen):
    """Outputs of the graph over given targets that tell where its tokens look in the source, of every layer.

    They are inner values: a pass that does not fetch them pays nothing for them.
    """

    queries: tuple[str, ...]
    """fp32 [targets, target, heads * head_dim]"""
    keys: tuple[str, ...]
    """fp32 [sources, heads, source, head_dim]"""
    within: SelfAttention | None = None
    """Where they look in the target. None: they do not, or the package is older."""
    heads: int = Field(gt=0)
    scale: float
    """Of a query's product with a key, before the softmax."""

    @property
    def outputs(self) -> list[str]:
        """All of them."""
        return [*self.queries, *self.keys, *(self.within.outputs if self.within else ())]

    @model_validator(mode="after")
    def _paired(self) -> "TargetAttention":
        if len(self.queries) != len(self.keys):
            raise ValueError(f"there are {len(self.queries)} queries and {len(self.keys)} keys; every layer has both")
        return self


class Aligner(Frozen):
    """The heads whose attention says which source token a target token comes from: their mean.

    Chosen by names and numbers that translations copy, and so have a known partner.
    """

    layer: int = Field(ge=0)
    """Of the decoder."""
    heads: tuple[int, ...] = Field(min_length=1)
    tokens: int = Field(gt=0)
    """Target tokens of copied names and numbers."""
    right: int = Field(ge=0)
    """So many of them look at their partner most."""
