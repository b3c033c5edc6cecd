"""The model as a package holds it: weights in the package's precision, heads of a size that its attention takes."""

import copy

import torch

from models.architectures.architecture import Architecture
from models.attention.nodes import HEAD_DIM_MULTIPLE
from models.config import ModelShape
from models.package.declared.precision import AttentionKind, Precision
from models.package.declared.tensors import CacheTensor
from models.package.derived import source_tensors, target_tensors

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
PRECISIONS = {dtype: precision for precision, dtype in DTYPES.items()}


class VariantError(Exception):
    """A model that cannot become a package of this precision or attention. The message says what else it can become."""


def variant(model: Architecture, precision: Precision, attention: AttentionKind) -> Architecture:
    """The model in a precision; itself, if that is fp32, or is made of fp32 (int8). Raises VariantError."""
    check_architecture(model.config, precision)
    if attention == "fused":
        check_heads(model.config)
    if precision == "int8":
        check_layers(model.config)
    if precision not in DTYPES or precision == "fp32":
        return model
    converted = copy.deepcopy(model).to(DTYPES[precision])
    check_range(model, converted, precision)
    return converted


def check_architecture(config: ModelShape, precision: Precision) -> None:
    """Raises VariantError where there are no kernels of this precision: recurrences compute in fp32."""
    if precision == "int16":
        raise VariantError(
            "precision is int16, which only packages of an encoder alone have. Export with --precision fp32 or int8"
        )
    if precision != "fp32" and config.architecture != "transformer":
        raise VariantError(
            f"precision is {precision}; a model of the architecture {config.architecture!r} runs in fp32. Export with "
            "--precision fp32"
        )


def attention_of(config: ModelShape) -> AttentionKind:
    """The attention that the decoder's heads allow."""
    return "fused" if odd_heads(config) is None else "plain"


def odd_heads(config: ModelShape) -> CacheTensor | None:
    """What GroupQueryAttention does not take of the decoder."""
    tensors = (*target_tensors(config, "fp32"), *source_tensors(config, "fp32"))
    return next((tensor for tensor in tensors if tensor.grows and tensor.head_dim % HEAD_DIM_MULTIPLE), None)


def check_heads(config: ModelShape) -> None:
    """Raises VariantError where GroupQueryAttention does not take the decoder's heads."""
    tensor = odd_heads(config)
    if tensor is not None:
        raise VariantError(
            f"the decoder's heads have {tensor.head_dim} numbers (width {config.width}, {tensor.heads} heads); "
            f"fused attention takes multiples of {HEAD_DIM_MULTIPLE}. Export with --attention plain"
        )


def check_layers(config: ModelShape) -> None:
    """Raises VariantError where layers are of a kind that has no 8 bits."""
    if getattr(config, "shared_layers", False):
        raise VariantError("shared_layers is True; 8 bits are made of layers where it is False. Export in fp32")


def check_range(model: Architecture, converted: Architecture, precision: Precision) -> None:
    """Raises VariantError where a weight became infinite."""
    state = model.state_dict()
    for name, weight in converted.state_dict().items():
        if not weight.isfinite().all() and state[name].isfinite().all():
            raise VariantError(
                f"{name} holds {float(state[name].abs().max()):g}; {precision} ends at "
                f"{torch.finfo(weight.dtype).max:g}. Export with --precision bf16 or fp32"
            )
