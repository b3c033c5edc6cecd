"""One step of a recurrence: the tanh cell, the gated recurrent unit, the long short-term memory.

Gates lie in the order of ONNX, whose operators encode the source: GRU z, r, n; LSTM i, o, f, g.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.architectures.recurrent.config import GATES, Cell
from models.attention.nodes import gated_unit, takes_ours


class RecurrentCell(nn.Module):
    """A decoder layer: x [rows, inputs] and states [rows, width] -> the states after it."""

    def __init__(self, kind: Cell, inputs: int, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, GATES[kind] * width)
        self.hidden = nn.Linear(width, GATES[kind] * width)
        self._step = {"rnn": _tanh, "gru": _gru, "lstm": _lstm}[kind]

    def forward(self, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """The first of the states is what the cell gives."""
        return self._step(self.input(x), self.hidden(states[0]), states)


def _tanh(given: Tensor, kept: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """H' = tanh(W x + U h + b). Elman 1990."""
    return [torch.tanh(given + kept)]


def _gru(given: Tensor, kept: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """The gated recurrent unit (Cho et al. 2014), where r is applied after the product with U.

        z = sigmoid(Wz x + Uz h)      r = sigmoid(Wr x + Ur h)      n = tanh(Wn x + r (Un h))
        h' = (1 - z) n + z h

    given, kept: the products with W and with U, biases included [rows, 3 * width]
    """
    if takes_ours():
        return [gated_unit(given, kept, states[0])]
    (z, r, n), (z_kept, r_kept, n_kept) = given.chunk(3, 1), kept.chunk(3, 1)
    z, r = torch.sigmoid(z + z_kept), torch.sigmoid(r + r_kept)
    n = torch.tanh(n + r * n_kept)
    return [(1 - z) * n + z * states[0]]


def _lstm(given: Tensor, kept: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """The long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

        i, o, f = sigmoid(W x + U h)      g = tanh(Wg x + Ug h)      c' = f c + i g      h' = o tanh(c')

    given, kept: the products with W and with U, biases included [rows, 4 * width]
    """
    i, o, f, g = (given + kept).chunk(4, 1)
    c = torch.sigmoid(f) * states[1] + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]
