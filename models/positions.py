"""Positions that are added to tokens: tables, learned or of sinusoids (Vaswani et al. 2017, section 3.5)."""

import torch
from torch import Tensor, nn

from models.config import ModelConfig


def position_table(config: ModelConfig) -> nn.Parameter:
    """The position embeddings [max_positions, width]: learned, or fixed sinusoids.

    The sinusoids have all sines first and then all cosines, as in tensor2tensor, Marian and Hugging Face.
    """
    if config.positions == "learned":
        return nn.Parameter(torch.randn(config.sentences * config.max_positions, config.width) * config.width**-0.5)
    return nn.Parameter(sinusoids(config.max_positions, config.width), requires_grad=False)


def sinusoids(positions: int, width: int) -> Tensor:
    """The fixed position embeddings [positions, width]."""
    angle = torch.arange(positions, dtype=torch.float64).unsqueeze(1) * frequencies(width)
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def frequencies(width: int) -> Tensor:
    """Of the sinusoids: fp64 [width / 2]."""
    half = width // 2
    return torch.pow(10000.0, -torch.arange(half, dtype=torch.float64) / half)
