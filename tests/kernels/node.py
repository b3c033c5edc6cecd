"""An operator alone, in a graph of one node that ONNX Runtime runs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kernels.library import Library

Array = NDArray[Any]
Ports = list[tuple[str, type[np.generic] | None]]
"""Names and types; None: left out."""
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.float16): TensorProto.FLOAT16,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.int16): TensorProto.INT16,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.int64): TensorProto.INT64,
}


class Node:
    """A session of one node. Inputs are constants, or given at each call; None leaves one out."""

    def __init__(
        self,
        library: Library,
        operator: str,
        inputs: Ports,
        constants: Mapping[str, Array],
        outputs: Ports,
        **attributes: Any,
    ) -> None:
        names = [name if dtype is not None else "" for name, dtype in inputs]
        node = helper.make_node(operator, names, [name for name, _ in outputs], domain="dragoman", **attributes)
        graph = helper.make_graph(
            [node],
            operator,
            [
                helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], None)
                for name, dtype in inputs
                if dtype is not None and name not in constants
            ],
            [helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], None) for name, dtype in outputs if dtype],
            [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
        )
        domains = [helper.make_opsetid("", 21), helper.make_opsetid("dragoman", 1)]
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.register_custom_ops_library(str(library.path))
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        self._session = ort.InferenceSession(model.SerializeToString(), options)

    def __call__(self, **inputs: Array) -> list[Array]:
        """What the node gives, in memory of its own."""
        outputs: list[Array] = self._session.run(None, inputs)
        return outputs

    def in_place(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Writes into the given memory; an output may be an input."""
        binding = self._session.io_binding()
        for bind, arrays in ((binding.bind_input, inputs), (binding.bind_output, outputs)):
            for name, array in arrays.items():
                bind(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding)
