"""How captured operators of PyTorch become operators of ONNX: sooner than torch.onnx.export does it by itself.

It reads all that it knows for every graph again, and decomposes each captured program into PyTorch's core operators,
which traces it a second time: two thirds of an export in all. But nearly every operator of our models can be translated
as it was captured. The few others are here. A program with operators that nobody can translate is still decomposed.
And it runs a program once more to find where types mix; capturing has left at each node what it gives. At each it also
looks up and spells out the lines of Python that it comes from, which no graph keeps. What ONNX says of an operator it
makes ready for every node again.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import onnx
import torch
import torch.fx.config
from onnx_ir.schemas import OpSignature
from onnxscript import opset21 as op
from onnxscript.function_libs.torch_lib.ops import core
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.onnx._internal.exporter import _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.onnx._internal.fx.passes.type_promotion import _TypePromotionInterpreter, get_type_promotion_rule

OPSET = 21

# What is traced here has no type that onnxscript's operators would take.
Traced = Any


def _cast(x: Traced, dtype: int, non_blocking: bool = False, copy: bool = False, memory_format: str = "") -> Traced:
    return op.Cast(x, to=dtype)


def _flatten(x: Traced, start_dim: int = 0, end_dim: int = -1) -> Traced:
    before, behind = start_dim % len(x.shape), x.shape[end_dim % len(x.shape) + 1 :]
    return _reshape(x, before, [-1, *behind]) if _known(behind) else core.aten_flatten(x, start_dim, end_dim)


def _unflatten(x: Traced, dim: int, sizes: Sequence[int]) -> Traced:
    before, behind = dim % len(x.shape), x.shape[dim % len(x.shape) + 1 :]
    wanted = [*sizes, *behind]
    return _reshape(x, before, wanted) if _known(wanted) else core.aten_unflatten(x, dim, sizes)


def _rsub(x: Traced, other: float, alpha: float = 1) -> Traced:
    return op.Sub(other, x if alpha == 1 else op.Mul(x, alpha))


def _known(sizes: Sequence[object]) -> bool:
    """Before the graph runs."""
    return all(isinstance(size, int) for size in sizes)


def _reshape(x: Traced, before: int, sizes: Sequence[int]) -> Traced:
    """Into these sizes behind so many that stay."""
    shape: Any = op.Constant(value_ints=[0] * before + list(sizes))
    return op.Reshape(x, shape)


TRANSLATIONS: dict[OpOverload, Callable[..., Traced]] = {
    torch.ops.aten.to.dtype: _cast,
    torch.ops.aten.flatten.using_ints: _flatten,
    torch.ops.aten.unflatten.int: _unflatten,
    torch.ops.aten.rsub.Scalar: _rsub,
}


def install() -> None:
    """From now on torch.onnx.export works like this, in the whole process. It has no options for it."""
    from_torchlib = ONNXRegistry.from_torchlib
    decompose = _fx_passes.decompose_with_registry
    from_schema = OpSignature.from_op_schema
    signatures: dict[tuple[str, str, int], OpSignature] = {}

    @cache
    def registry(opset_version: int) -> ONNXRegistry:
        known = from_torchlib(opset_version)
        for operator, translation in TRANSLATIONS.items():
            known.register_op(operator, translation)
        return known

    def decompose_if_needed(exported_program: ExportedProgram, registry: ONNXRegistry) -> ExportedProgram:
        _fx_passes.remove_assertion_nodes(exported_program.graph_module)
        whole = _translatable(exported_program, registry)
        return exported_program if whole else decompose(exported_program, registry)

    def signature(schema: onnx.defs.OpSchema) -> OpSignature:
        key = schema.domain, schema.name, schema.since_version
        if key not in signatures:
            signatures[key] = from_schema(schema)
        return signatures[key]

    ONNXRegistry.from_torchlib = staticmethod(registry)  # type: ignore[method-assign]
    OpSignature.from_op_schema = staticmethod(signature)  # type: ignore[method-assign, assignment]
    _fx_passes.decompose_with_registry = decompose_if_needed
    _TypePromotionInterpreter.run_node = _promote  # type: ignore[method-assign, assignment]
    torch.fx.config.do_not_emit_stack_traces = True


def _translatable(program: ExportedProgram, registry: ONNXRegistry) -> bool:
    """Whether each operator has a translation, and none writes into its inputs."""
    operators = [node.target for node in program.graph.nodes if isinstance(node.target, OpOverload)]
    return all(registry.is_registered(it) and not it._schema.is_mutable for it in operators)


def _promote(interpreter: _TypePromotionInterpreter, node: Node) -> Any:
    """Casts what a node is given where types mix. What it gives is known, unless capturing or casting did not say."""
    if rule := get_type_promotion_rule(node, interpreter.type_promotion_table):
        with interpreter._set_current_node(node):
            interpreter._maybe_promote_node(node, rule)
    value = node.meta.get("val") if node.op == "call_function" else None
    return Interpreter.run_node(interpreter, node) if value is None else value
