"""What a recipe of 8 bits means, in PyTorch: exact sums of quantized numbers, and all else as the model has it."""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from export.quantization.recipe import QuantizedLinear, Recipe
from models.transformer import Transformer


class EmulatedLinear(nn.Module):
    """A linear layer of a recipe."""

    def __init__(self, recipe: QuantizedLinear, bias: Tensor | None, cached: int) -> None:
        """cached: so many of the last outputs are keys and values, which a cache keeps in fp16."""
        super().__init__()
        self._cached = cached
        self._activations = recipe.activations
        self._weight, self._scales = torch.from_numpy(recipe.weight).double(), torch.from_numpy(recipe.scales)
        self._bias = torch.zeros(len(recipe.scales)) if bias is None else bias

    def forward(self, x: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]."""
        kind = self._activations
        if kind.bits == 16:  # as good as not quantized
            return self._output((x.double() @ self._weight.T).float() * self._scales)
        highest = 255 - kind.zero_point
        scale = torch.tensor(np.float32(kind.scale)) if not kind.per_row else x.abs().amax(1, keepdim=True) / highest
        quantized = (x / scale).round().clamp(-kind.zero_point, highest)
        products = (quantized.double() @ self._weight.T).float()
        return self._output(products * scale * self._scales)

    def _output(self, products: Tensor) -> Tensor:
        outputs = products + self._bias
        kept = outputs.shape[1] - self._cached
        return torch.cat([outputs[:, :kept], outputs[:, kept:].half().float()], 1)


def emulated(model: Transformer, recipe: Recipe) -> Transformer:
    """The model with the linear layers of a recipe. The output layer, and a table that is its, lose digits alone."""
    changed, inner = copy.deepcopy(model), model.config.inner(model.config.decoder_heads)
    cached = {f"decoder.{layer}.attention.qkv": 2 * inner for layer in range(len(model.decoder))}
    cached["cross_kv"] = model.cross_kv.out_features
    for name, layer in recipe.items():
        if name != "output":
            parent, _, leaf = name.rpartition(".")
            module = changed.get_submodule(parent)
            setattr(module, leaf, EmulatedLinear(layer, getattr(module, leaf).bias, cached.get(name, 0)))
    if "output" in recipe:
        output = recipe["output"]
        table = torch.from_numpy(output.weight * output.scales[:, None])
        with torch.no_grad():
            changed.output_weight[: len(table)] = table
    return changed.eval()
