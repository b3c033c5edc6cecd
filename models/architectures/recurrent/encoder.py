"""Recurrences over a source: PyTorch's kernels while training, ONNX's operators RNN, GRU and LSTM in a package."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from models.architectures.recurrent.config import GATES, STATES, Cell, RecurrentConfig
from models.attention.nodes import Attributes

OPERATORS: dict[Cell, str] = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}
KERNELS: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
PYTORCH_ORDER: dict[Cell, tuple[int, ...]] = {"rnn": (0,), "gru": (1, 0, 2), "lstm": (0, 2, 3, 1)}
"""Which of our gates, in the order of `models.architectures.recurrent.cells`, PyTorch has first, second, ..."""
OPSET = 21


class Read(NamedTuple):
    """What a layer makes of a source."""

    hidden: Tensor
    """After every token, 0 in the padding [sentences, source, width]."""
    last: list[Tensor]
    """The states after the last token that each direction reads, joined: each [sentences, width]."""


class RecurrentLayer(nn.Module):
    """Reads sources from the left, and if there are two directions also from the right."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.cell, self.directions = config.cell, config.directions
        self.size = config.width // self.directions
        """Numbers of a state of one direction."""
        rows = GATES[self.cell] * self.size
        self.weight_input = nn.Parameter(torch.empty(self.directions, rows, config.width))
        self.weight_hidden = nn.Parameter(torch.empty(self.directions, rows, self.size))
        self.bias = nn.Parameter(torch.empty(self.directions, 2 * rows))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.size**-0.5), self.size**-0.5)
        kernel = KERNELS[self.cell](
            config.width, self.size, batch_first=True, bidirectional=config.bidirectional, device="meta"
        )
        self._kernel = (kernel,)  # inside a tuple, so that its weights, of which it has none, are not this module's

    def forward(self, x: Tensor, lengths: Tensor) -> Read:
        """x: [sentences, source, width]; lengths: [sentences], tokens before the padding."""
        if torch.onnx.is_in_onnx_export():
            return self._operator(x, lengths)
        with torch.autocast(x.device.type, enabled=False):  # its kernel is not faster in bf16, and rounds every step
            return self._run_kernel(x.float(), lengths)

    def _run_kernel(self, x: Tensor, lengths: Tensor) -> Read:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, last = torch.func.functional_call(self._kernel[0], self._pytorch_weights(), (packed,))
        hidden, _ = pad_packed_sequence(output, batch_first=True, total_length=x.shape[1])
        states = last if self.cell == "lstm" else (last,)
        return Read(hidden, [_join(state) for state in states])

    def _pytorch_weights(self) -> dict[str, Tensor]:
        """The weights, as PyTorch's module names and orders them."""
        biases = self.bias.unflatten(1, (2, -1))
        named: dict[str, Tensor] = {}
        for direction in range(self.directions):
            suffix = "l0_reverse" if direction else "l0"
            for name, weight in (
                ("weight_ih", self.weight_input[direction]),
                ("weight_hh", self.weight_hidden[direction]),
                ("bias_ih", biases[direction, 0]),
                ("bias_hh", biases[direction, 1]),
            ):
                gates = weight.chunk(GATES[self.cell])
                named[f"{name}_{suffix}"] = torch.cat([gates[index] for index in PYTORCH_ORDER[self.cell]])
        return named

    def _operator(self, x: Tensor, lengths: Tensor) -> Read:
        # ONNX Runtime multiplies one row in a way of its own in this operator, and in no other: a sentence more, which
        # nobody reads, and the last bits of a sentence do not depend on whether there are others.
        spare = self.cell == "rnn"
        if spare:
            x, lengths = F.pad(x, (0, 0, 0, 0, 0, 1)), F.pad(lengths, (0, 1), value=1)
        sentences, source = x.shape[0], x.shape[1]
        state = self.directions, sentences, self.size
        attributes: Attributes = {
            "hidden_size": self.size,
            "direction": "bidirectional" if self.directions == 2 else "forward",
        }
        if self.cell == "gru":
            attributes["linear_before_reset"] = 1
        outputs = 1 + len(STATES[self.cell])
        hidden, *last = torch.onnx.ops.symbolic_multi_out(
            OPERATORS[self.cell],
            [x.transpose(0, 1), self.weight_input, self.weight_hidden, self.bias, lengths],
            attributes,
            version=OPSET,
            dtypes=[x.dtype] * outputs,
            shapes=[(source, self.directions, sentences, self.size), *[state] * (outputs - 1)],
        )
        read = Read(hidden.permute(2, 0, 1, 3).flatten(2), [_join(part) for part in last])
        return Read(read.hidden[:-1], [part[:-1] for part in read.last]) if spare else read


class RecurrentEncoder(nn.Module):
    """Layers one on top of the other."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(RecurrentLayer(config) for _ in range(config.encoder_layers))
        self.dropout = nn.Dropout(0.0)
        self.reverse = config.reverse_source

    def forward(self, x: Tensor, lengths: Tensor) -> list[Read]:
        """x: embedded tokens [sentences, source, width]. Returns what each layer made of them, in their order."""
        read: list[Read] = []
        x = _reversed(x, lengths) if self.reverse else x
        for layer in self.layers:
            read.append(layer(self.dropout(x), lengths))
            x = read[-1].hidden
        return [Read(_reversed(each.hidden, lengths), each.last) for each in read] if self.reverse else read


def _join(states: Tensor) -> Tensor:
    """[directions, sentences, size] -> [sentences, directions * size]."""
    return states.transpose(0, 1).flatten(1)


def _reversed(x: Tensor, lengths: Tensor) -> Tensor:
    """Every source [source, width] from its last token to its first; its padding is of no account."""
    places = lengths.long().unsqueeze(1) - 1 - torch.arange(x.shape[1], device=x.device)
    return x.gather(1, places.clamp(min=0).unsqueeze(2).expand_as(x))
