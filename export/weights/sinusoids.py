"""Position tables that need not be stored: ONNX Runtime computes them once, when it loads a graph."""

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.tape import Tape

from models.positions import frequencies, sinusoids


def are_sinusoids(numbers: NDArray[Any]) -> bool:
    """Whether a table is that of `models.positions.sinusoids`, to the last bit."""
    if numbers.dtype != np.float32 or numbers.ndim != 2:
        return False
    # Most tables are not: their first rows show it, before anything as large as a vocabulary is computed.
    return all(np.array_equal(sinusoids(rows, numbers.shape[1]).numpy(), numbers[:rows]) for rows in (2, len(numbers)))


def compute_sinusoids(tape: Tape, name: str, positions: int, width: int) -> ir.Value:
    """The table from its frequencies, in fp64, as `models.positions.sinusoids` computes it."""
    numbers = np.arange(positions, dtype=np.float64)[:, None]
    column, row = (
        tape.initializer(ir.tensor(array, name=f"{name}.{part}"))
        for part, array in (("positions", numbers), ("frequencies", frequencies(width).numpy()))
    )
    angles = tape.op("Mul", [column, row])
    halves = [tape.op(function, [angles]) for function in ("Sin", "Cos")]
    table = tape.op("Concat", halves, {"axis": 1})
    return tape.op("Cast", [table], {"to": ir.DataType.FLOAT.value})


def leave_out_sinusoids(model: ir.Model) -> None:
    """Lets a graph compute its tables."""
    graph, tape = model.graph, Tape()
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None and len(tensor.shape) == 2 and are_sinusoids(tensor.numpy()):
            del graph.initializers[name]
            table = compute_sinusoids(tape, name, *tensor.numpy().shape)
            value.replace_all_uses_with(table)
            table.name = name
    for constant in tape.initializers:
        graph.initializers[constant.name or ""] = constant
    graph.insert_before(graph[0], tape.nodes)
