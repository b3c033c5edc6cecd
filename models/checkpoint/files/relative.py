"""Relative positions as checkpoints have them, in buckets of distances -> a row for each distance."""

import math

import torch
from torch import Tensor

from models.attention.relative import RelativeBias
from models.checkpoint.files.reading import TensorFile


@torch.no_grad()
def put_relative(bias: RelativeBias, names: list[str], buckets: int, longest: int, tensors: TensorFile) -> None:
    """Fills the tables of one side.

    names: of the tensors [buckets, heads], one for each table; longest: the distance that ends the last but one bucket
    """
    rows, heads = bias.tables[0].shape
    distances = torch.arange(rows) - rows // 2 if bias.both_ways else -torch.arange(rows)
    chosen = bucket(distances, bias.both_ways, buckets, longest)
    for name, table in zip(names, bias.tables, strict=True):
        table[:] = tensors.take(name, (buckets, heads))[chosen]


def bucket(distances: Tensor, both_ways: bool, buckets: int, longest: int) -> Tensor:
    """Of each distance from a query's token to a key's: `_relative_position_bucket` of transformers, in its fp32."""
    first: Tensor | int = 0
    if both_ways:
        buckets //= 2
        first = (distances > 0).long() * buckets
    distances = distances.abs() if both_ways else -distances.clamp(max=0)
    exact = buckets // 2
    logarithm = torch.log(distances.float() / exact) / math.log(longest / exact) * (buckets - exact)
    far = (exact + logarithm.long()).clamp(max=buckets - 1)
    return first + torch.where(distances < exact, distances, far)
