"""Rotary positions: queries and keys are turned by where they stand, so that their products know distances alone.

Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2. As in ModernBERT (Warner
et al. 2024, "Smarter, Better, Faster, Longer", section 2.1.2), layers that see all of a text and layers that see a
window turn by angles of their own.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention.nodes import LOWEST
from models.config import ModelConfig


class Turn(NamedTuple):
    """What the heads of tokens are turned by."""

    cosine: Tensor
    """[tokens, head_dim / 2]"""
    sine: Tensor

    def of(self, qkv: Tensor, heads: int) -> Tensor:
        """qkv: queries, keys and values, joined [tokens, 3 * inner]. Returns them with queries and keys turned.

        A number of a head's first half and that of its second half are the two coordinates of a point.
        """
        inner = qkv.shape[1] // 3
        turned, values = qkv.split([2 * inner, inner], 1)
        first, second = turned.unflatten(1, (2 * heads, 2, -1)).unbind(2)
        cosine, sine = self.cosine.unsqueeze(1), self.sine.unsqueeze(1)
        halves = first * cosine - second * sine, second * cosine + first * sine
        return torch.cat([torch.stack(halves, 2).flatten(1), values], 1)


class RotaryPositions(nn.Module):
    """Of an encoder. Angles are looked up: where ONNX Runtime computes one may decide about its last bit."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        rotary, head_dim = config.rotary, config.inner(config.encoder_heads) // config.encoder_heads
        assert rotary is not None
        self.window = rotary.window
        self.local = [layer in rotary.local_layers for layer in range(config.encoder_layers)]
        """Of each layer: it sees a window."""
        tables = [turns(config.max_positions, head_dim, base) for base in (rotary.base, rotary.local_base)]
        self.cosines, self.sines = (
            nn.ParameterList(nn.Parameter(table, requires_grad=False) for table in kind)
            for kind in zip(*tables, strict=True)
        )
        """[max_positions, head_dim / 2] each: of layers that see all, and of those that see a window."""

    def over(self, positions: Tensor) -> list[Turn]:
        """Of each layer, for tokens at these positions [tokens]."""
        pairs = zip(self.cosines, self.sines, strict=True)
        kinds = [Turn(*(F.embedding(positions, table) for table in pair)) for pair in pairs]
        return [kinds[local] for local in self.local]

    def biases(self, length: int) -> list[Tensor | None]:
        """Of each layer, what hides from so many tokens those beyond the window: [1, 1, queries, keys]."""
        places = torch.arange(length, device=self.sines[0].device)
        beyond = (places - places.unsqueeze(1)).abs() > self.window
        hidden = torch.where(beyond, LOWEST, 0.0).unsqueeze(0).unsqueeze(0)
        return [hidden if local else None for local in self.local]


def turns(positions: int, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [positions, head_dim / 2], in fp32 from the beginning, as models are trained with them."""
    frequencies = 1.0 / (base ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    angles = torch.arange(positions, dtype=torch.float32).unsqueeze(1) * frequencies
    return angles.cos(), angles.sin()
