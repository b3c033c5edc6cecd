"""A decoder step whose outputs are written over its inputs, as engines run it."""

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.devices.session import CPU
from models.package import signature
from models.package.graph_files import GraphFiles


def check_bits_in_place(graphs: GraphFiles, rows: int) -> None:
    """A step on arrays of its own, and one in place: states and tokens are the same, bit for bit."""
    session = ort.InferenceSession(graphs.decoder, providers=[CPU.provider])
    chance = np.random.default_rng(rows)
    arrays = {value.name: _feed(value, rows, chance) for value in session.get_inputs()}
    states = [tensor for tensor in graphs.spec.cache if tensor.owner == "hypothesis"]
    names = [*signature.DECODER_OUTPUTS, *(tensor.present for tensor in states)]
    expected: Sequence[NDArray[np.float32]] = session.run(names, arrays)
    binding = session.io_binding()
    written = {tensor.present: arrays[tensor.past] for tensor in graphs.spec.cache}
    written |= {name: np.zeros_like(array) for name, array in zip(names[:2], expected[:2], strict=True)}
    for name, array in arrays.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for name, array in written.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    session.run_with_iobinding(binding)
    for name, array in zip(names, expected, strict=True):
        assert written[name].tobytes() == array.tobytes(), name


def _feed(value: ort.NodeArg, rows: int, chance: np.random.Generator) -> NDArray[np.generic]:
    """Any input of a decoder step, sources of seven tokens at most."""
    sizes = {"rows": rows, "k": 3, "source_capacity": 7}
    shape = [sizes.get(size, size) for size in value.shape]
    if value.type == "tensor(float)":
        return chance.standard_normal(shape).astype(np.float32)
    if value.name in ("total", "source_total"):
        return np.array(7, np.int32)
    return chance.integers(1, 7, shape).astype(np.int32 if value.type == "tensor(int32)" else np.int64)
