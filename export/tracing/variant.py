"""The model as a package holds it: weights in the package's precision, heads of a size that its attention takes."""

import copy

import torch

from models.attention import HEAD_DIM_MULTIPLE
from models.config import ModelConfig
from models.package.precision import AttentionKind, Precision
from models.transformer import Transformer

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PRECISIONS = {dtype: precision for precision, dtype in DTYPES.items()}


class VariantError(Exception):
    """A model that cannot become a package of this precision or attention. The message says what else it can become."""


def variant(model: Transformer, precision: Precision, attention: AttentionKind) -> Transformer:
    """The model in a precision; itself, if that is fp32, or is made of fp32 (int8). Raises VariantError."""
    if attention == "fused":
        check_heads(model.config)
    if precision == "int8":
        check_layers(model.config)
    if precision not in DTYPES or precision == "fp32":
        return model
    converted = copy.deepcopy(model).to(DTYPES[precision])
    check_range(model, converted, precision)
    return converted


def check_heads(config: ModelConfig) -> None:
    """Raises VariantError where GroupQueryAttention does not take the decoder's heads."""
    if config.decoder_head_dim % HEAD_DIM_MULTIPLE:
        raise VariantError(
            f"the decoder's heads have {config.decoder_head_dim} numbers (width {config.width}, "
            f"{config.decoder_heads} heads); fused attention takes multiples of {HEAD_DIM_MULTIPLE}. "
            f"Export with --attention plain"
        )


def check_layers(config: ModelConfig) -> None:
    """Raises VariantError where layers are of a kind that has no 8 bits."""
    for name, wanted in (("gated", False), ("bias", True)):
        if (found := getattr(config, name)) != wanted:
            raise VariantError(f"{name} is {found!r}; 8 bits are made of layers where it is {wanted!r}. Export in fp32")


def check_range(model: Transformer, converted: Transformer, precision: Precision) -> None:
    """Raises VariantError where a weight became infinite."""
    state = model.state_dict()
    for name, weight in converted.state_dict().items():
        if not weight.isfinite().all() and state[name].isfinite().all():
            raise VariantError(
                f"{name} holds {float(state[name].abs().max()):g}; {precision} ends at "
                f"{torch.finfo(weight.dtype).max:g}. Export with --precision bf16 or fp32"
            )
