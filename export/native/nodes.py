"""The nodes and constants of a graph that grows."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.tape import Tape
from torch import Tensor

from models.package.signature import OPERATORS_VERSION

DOMAIN, MICROSOFT = "dragoman", "com.microsoft"
OPSET = 21
IR_VERSION = 10

Attributes = Mapping[str, int | float | str]
Inputs = Sequence[ir.Value | None]
"""None: one that is left out."""


class Nodes:
    """A graph whose operators are ours, and ONNX's where those do as well."""

    def __init__(self) -> None:
        self._tape = Tape()
        self._constants: dict[str, ir.Value] = {}

    def constant(self, name: str, numbers: Tensor | NDArray[np.generic]) -> ir.Value:
        """One for each name."""
        if name not in self._constants:
            array = numbers.detach().numpy() if isinstance(numbers, Tensor) else numbers
            self._constants[name] = self._tape.initializer(ir.tensor(array, name=name))
        return self._constants[name]

    def standard(self, operator: str, inputs: Inputs, attributes: Attributes | None = None) -> ir.Value:
        """A node of an operator of ONNX."""
        return self._tape.op(operator, inputs, attributes)

    def ours(self, operator: str, inputs: Inputs, attributes: Attributes | None = None) -> ir.Value:
        """A node of one of our operators."""
        return self._tape.op(operator, _without_end(inputs), attributes, domain=DOMAIN)

    def ours_of_many(
        self, operator: str, inputs: Inputs, outputs: int, attributes: Attributes | None = None
    ) -> Sequence[ir.Value]:
        """The same, with several outputs."""
        given = _without_end(inputs)
        return self._tape.op_multi_out(operator, given, attributes, num_outputs=outputs, domain=DOMAIN)

    def microsoft(
        self, operator: str, inputs: Inputs, outputs: Sequence[ir.Value], attributes: Attributes | None = None
    ) -> Sequence[ir.Value]:
        """A node of one of ONNX Runtime's operators. outputs: `unused` ones are left out."""
        return self._tape.op_multi_out(operator, _without_end(inputs), attributes, outputs=outputs, domain=MICROSOFT)

    def model(self, name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Model:
        """All of it, from inputs to outputs."""
        imports = {"": OPSET, DOMAIN: OPERATORS_VERSION}
        if any(node.domain == MICROSOFT for node in self._tape.nodes):
            imports[MICROSOFT] = 1
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=self._tape.nodes,
            initializers=self._tape.initializers,
            opset_imports=imports,
            name=name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name=DOMAIN)


def _without_end(inputs: Inputs) -> Inputs:
    """Those up to the last one that is there."""
    end = max((index + 1 for index, value in enumerate(inputs) if value is not None), default=0)
    return inputs[:end]


def unused() -> ir.Value:
    """An output that a node need not compute."""
    return ir.Value(name="")


def variable(name: str, dtype: ir.DataType, axes: Sequence[str | int]) -> ir.Value:
    """An input of a graph."""
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(axes))


def declared(value: ir.Value, name: str, dtype: ir.DataType, axes: Sequence[str | int]) -> ir.Value:
    """What a node gives, as an output of the graph."""
    value.name, value.type, value.shape = name, ir.TensorType(dtype), ir.Shape(axes)
    return value
