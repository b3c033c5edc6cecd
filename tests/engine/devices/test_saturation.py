"""engine.devices.graphs.saturation: products of u8 with s8 are exact everywhere, by the fastest kernels that are."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine.devices import session
from engine.devices.graphs.saturation import saturates
from engine.devices.session import CPU, open_session

INPUTS, OUTPUTS = 256, 48


@pytest.fixture(scope="module")
def graph() -> bytes:
    """Products with a constant weight, of which some are as large as they can be."""
    weight = np.full((INPUTS, OUTPUTS), 127, np.int8)
    weight[::3, 1::2] = -127
    node = helper.make_node("MatMulInteger", ["x", "weight"], ["products"])
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, ["rows", INPUTS])
    products = helper.make_tensor_value_info("products", TensorProto.INT32, ["rows", OUTPUTS])
    made = helper.make_graph([node], "products", [x], [products], [numpy_helper.from_array(weight, "weight")])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def exact(opened: ort.InferenceSession) -> bool:
    """Whether its products of 1 and 8 rows are NumPy's."""
    weight = np.full((INPUTS, OUTPUTS), 127, np.int64)
    weight[::3, 1::2] = -127
    rows = np.full((8, INPUTS), 255, np.uint8)
    rows[5] = np.arange(INPUTS)
    return all(
        np.array_equal(opened.run(None, {"x": rows[:count]})[0], rows[:count].astype(np.int64) @ weight)
        for count in (1, 8)
    )


def test_products_are_exact(graph: bytes) -> None:
    assert exact(open_session(graph, CPU))


def test_only_where_the_fast_kernels_saturate_others_are_taken(graph: bytes) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    fast = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    assert exact(fast) is not saturates()


@pytest.mark.parametrize("saturating", [False, True])
def test_other_kernels_are_exact_too(graph: bytes, monkeypatch: pytest.MonkeyPatch, saturating: bool) -> None:
    monkeypatch.setattr(session, "saturates", lambda: saturating or saturates())
    assert exact(open_session(graph, CPU))
