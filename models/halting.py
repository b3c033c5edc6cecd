"""Adaptive computation time (Graves 2016; Dehghani et al. 2019, appendix C): every token stops at a depth of its own.

    p_n = sigmoid(w . x_n + b)      N = the first n with p_1 + ... + p_n > 1 - EPSILON, or the last depth
    R   = 1 - p_1 - ... - p_(N-1)   y = p_1 s_1 + ... + p_(N-1) s_(N-1) + R s_N

x_n is what the layer gets at depth n, s_n what it gives, and y what leaves the stack. As in the code of Dehghani et al.
a token that has halted goes on through the layers, where others may look at it; no more of it becomes part of its y.
"""

import torch
from torch import Tensor, nn

EPSILON = 0.01


class Halting(nn.Module):
    """The p of one side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * width**-0.5)
        self.bias = nn.Parameter(torch.ones(1))
        self.cost: Tensor | None = None
        """In training, N + R of every token of the last pass [tokens]: what there is to keep small."""

    def take_cost(self) -> Tensor:
        """That of the last pass, which is forgotten: a model with a part of its gradients' graph cannot be copied."""
        cost, self.cost = self.cost, None
        assert cost is not None
        return cost

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] -> [tokens, 1].

        Not as a matrix product: ONNX Runtime multiplies one row in a way of its own, and a bit may decide a depth.
        """
        return ((x * self.weight).sum(1, keepdim=True) + self.bias).sigmoid()


class Pondering:
    """How far the tokens of one pass have come."""

    def __init__(self, halting: Halting, depths: int) -> None:
        self._halting, self._depths_left = halting, depths
        self._left: Tensor | None = None

    def take(self, x: Tensor, state: Tensor) -> None:
        """What the layer got at the next depth, and what it gave [tokens, width]."""
        p = self._halting(x)
        if self._left is None:
            self._left, self._running = torch.ones_like(p), torch.ones_like(p, dtype=torch.bool)
            self._cost, self._mean = torch.zeros_like(p), torch.zeros_like(state)
        self._depths_left -= 1
        halts = self._running.logical_and(self._left - p < EPSILON) if self._depths_left else self._running
        share = torch.where(self._running, torch.where(halts, self._left, p), 0.0)
        self._mean = self._mean + share * state
        self._cost = self._cost + self._running + torch.where(halts, self._left, 0.0)
        self._left, self._running = self._left - share, self._running.logical_and(~halts)

    def output(self) -> Tensor:
        """What leaves the stack [tokens, width]."""
        if self._halting.training:
            self._halting.cost = self._cost.squeeze(1)
        return self._mean
