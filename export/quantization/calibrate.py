"""What goes into the linear layers of a model while it translates: what 8 bits of activations must hold.

The model goes over its own translations, teacher-forced, so every layer gets what it gets in service.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.transformer import Transformer

OUTPUT = "output"
"""The output layer, which is no module of its own."""
ENCODER = "encoder."
"""What the names of the encoder's layers begin with."""
KEPT = 4096
"""Tokens of a layer that are kept, evenly among all there are. (A few more, if they do not divide.)"""

Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""Token ids of a source, and of its translation, without the decoder's start token."""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """What a layer got."""

    kept: NDArray[np.float32]
    """Some tokens of it [tokens, inputs]."""
    largest: float
    """Absolute value, of all tokens."""


@torch.no_grad()
def observe(model: Transformer, pairs: Sequence[Pair]) -> dict[str, Inputs]:
    """What every linear layer gets, by its name in the model, while these translations are gone over."""
    stride = max(1, sum(len(target) for _, target in pairs) // KEPT)
    layers = {name: _Observed(stride) for name in [*linear_layers(model), OUTPUT]}
    with _observing(model, layers):
        for source, target in pairs:
            layers[OUTPUT].see(model.decoder_norm(hidden_states(model, source, target)))
    return {name: layer.inputs() for name, layer in layers.items()}


@torch.no_grad()
def observe_encoder(model: Transformer, sources: Sequence[Sequence[int]]) -> dict[str, Inputs]:
    """What every linear layer of the encoder gets, by its name in the model, while sources are encoded."""
    stride = max(1, sum(map(len, sources)) // KEPT)
    layers = {name: _Observed(stride) for name in linear_layers(model) if name.startswith(ENCODER)}
    with _observing(model, layers):
        for source in sources:
            encode(model, source)
    return {name: layer.inputs() for name, layer in layers.items()}


def encode(model: Transformer, source: Sequence[int]) -> Tensor:
    """The last hidden states of a source [1, tokens, width]."""
    return model.encode(torch.tensor([list(source)]), torch.tensor([len(source)], dtype=torch.int32))


def hidden_states(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """The last hidden states before each token of a translation [target, width], teacher-forced."""
    lengths = torch.tensor([len(source)], dtype=torch.int32)
    given = torch.tensor([[model.config.decoder_start_id, *target[:-1]]])
    return model.decode(encode(model, source), lengths, given)[-1]


def linear_layers(model: Transformer) -> dict[str, nn.Linear]:
    """By their names in the model. The output layer is not among them."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


class _Observed:
    """A layer while it is observed."""

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._kept: list[Tensor] = []
        self._tokens, self._largest = 0, 0.0

    def see(self, x: Tensor) -> None:
        """x: [tokens, inputs]."""
        self._kept.append(x[-self._tokens % self._stride :: self._stride].clone())
        self._tokens += len(x)
        self._largest = max(self._largest, float(x.abs().max()))

    def inputs(self) -> Inputs:
        """What was seen."""
        return Inputs(torch.cat(self._kept).numpy(), self._largest)


@contextmanager
def _observing(model: Transformer, layers: Mapping[str, _Observed]) -> Iterator[None]:
    """While it lasts, layers see what goes into them."""
    modules = {name: module for name, module in linear_layers(model).items() if name in layers}
    hooks = [module.register_forward_pre_hook(partial(_see, layers[name])) for name, module in modules.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _see(layer: _Observed, _: nn.Module, given: tuple[Tensor, ...]) -> None:
    layer.see(given[0])
