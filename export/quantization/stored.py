"""Weights of 8 bits as a file has them: [outputs, inputs], once, for graphs of standard operators and native ones."""

import numpy as np
import onnx_ir as ir

WEIGHTS = {"MatMulIntegerToFloat": 1, "QGemm": 3}
"""Operators of ONNX Runtime, and which of their inputs is a weight [inputs, outputs]."""


def store_by_outputs(model: ir.Model) -> None:
    """Turns the weights of a traced graph back: the exporter has turned them. ONNX Runtime does so when it loads."""
    graph = model.graph
    for node in list(graph):
        place = WEIGHTS.get(node.op_type)
        turned = None if place is None else node.inputs[place]
        if place is None or turned is None or turned.const_value is None:
            continue
        numbers = np.ascontiguousarray(turned.const_value.numpy().T)
        name = turned.name or ""
        del graph.initializers[name]
        weight = ir.Value(
            name=name,
            shape=ir.Shape(numbers.shape),
            type=ir.TensorType(ir.DataType.INT8),
            const_value=ir.tensor(numbers, name=name),
        )
        graph.initializers[name] = weight
        transpose = ir.node("Transpose", [weight], {"perm": [1, 0]})
        graph.insert_before(node, transpose)
        node.replace_input_with(place, transpose.outputs[0])
