"""Norms of hidden states, and where they stand beside a sublayer."""

import torch
from torch import Tensor, nn

from models.config import ModelConfig


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * weight. Zhang and Sennrich 2019, "Root Mean Square Layer Normalization"."""

    bias = None

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] -> [tokens, width]. In these operations ONNX Runtime sees one node of its own."""
        return x / (x.pow(2).mean(1, keepdim=True) + self.eps).sqrt() * self.weight


Norm = nn.LayerNorm | RMSNorm


def make_norm(config: ModelConfig) -> Norm:
    """The norm of a model's hidden states."""
    kind = RMSNorm if config.norm_kind == "rms" else nn.LayerNorm
    return kind(config.width, eps=config.norm_epsilon)


class Residual(nn.Module):
    """Where a sublayer's input is normalised: before it ("pre"), or after it is added ("post")."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm: nn.Module = make_norm(config)
        self.dropout = nn.Dropout(0.0)

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer gets."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The sublayer's input and output, joined."""
        y = self.dropout(y)
        return x + y if self.pre else self.norm(x + y)
