"""Relative positions: what each head adds to a score by the distance from the query's token to the key's.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section 2.1. A
table has a row for each distance, not for each of the buckets that models are trained with: whoever loads a checkpoint
looks them up once, and no step computes a logarithm.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import ModelConfig


class RelativeBias(nn.Module):
    """Of one side: a table for all of its layers, or one for each."""

    def __init__(self, config: ModelConfig, layers: int, heads: int, both_ways: bool = False) -> None:
        """both_ways: tokens are before a query and after it, as in an encoder."""
        super().__init__()
        self.layers, self.both_ways = layers, both_ways
        distances = 2 * config.max_positions - 1 if both_ways else config.max_positions
        tables = layers if config.relative == "per_layer" else 1
        self.tables = nn.ParameterList(nn.Parameter(torch.zeros(distances, heads)) for _ in range(tables))
        """[distances, heads] each. A key's token comes after a query's by max_positions - 1 less than the row, where
        there are both ways; else it comes before it by the row."""

    def over(self, length: int) -> list[Tensor]:
        """Of each layer, for all pairs of so many tokens: [1, heads, queries, keys]."""
        places = torch.arange(length, device=self.tables[0].device)
        if self.both_ways:
            rows = places - places.unsqueeze(1) + (len(self.tables[0]) // 2)
        else:
            rows = (places.unsqueeze(1) - places).clamp(min=0)
        return self._repeated([F.embedding(rows, table).permute(2, 0, 1).unsqueeze(0) for table in self.tables])

    def of_rows(self, positions: Tensor, slots: Tensor) -> list[Tensor]:
        """Of each layer, for one query of each row: [rows, heads, 1, slots].

        positions: of the queries [rows]; slots: of the keys [slots]. Those after a query are as if at its own place
        """
        rows = (positions.long().unsqueeze(1) - slots).clamp(min=0)
        return self._repeated([F.embedding(rows, table).transpose(1, 2).unsqueeze(2) for table in self.tables])

    def _repeated(self, biases: list[Tensor]) -> list[Tensor]:
        return biases if len(biases) == self.layers else biases * self.layers
