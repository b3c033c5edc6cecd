"""Whether ONNX Runtime's products of u8 with s8 are exact on this processor: the largest ones tell."""

from functools import cache

import onnxruntime as ort

from engine.devices.graphs import EXTREME

EXACT = 255 * 127 * 256
"""What every product of that graph is."""


@cache
def saturates() -> bool:
    """Without VNNI, its kernels for x86 add pairs in 16 bits."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(EXTREME, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    return any((products != EXACT).any() for products in session.run(None, {}))
