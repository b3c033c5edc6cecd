"""engine.cuda.runtime: rows that are moved, against numpy; numbers that are read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.cuda import runtime
from engine.cuda.runtime import NUMBER_TYPES, Block, DeviceRuntime
from engine.devices.session import CPU
from models.package.declared.precision import Precision

TENSORS, HEADS, WORDS = 3, 2, 2


@pytest.fixture(scope="module")
def device() -> DeviceRuntime:
    return DeviceRuntime(CPU, longest=64)


def block(array: NDArray[np.int64]) -> Block:
    tensors, rows, heads, places, words = array.shape
    return Block(array.ctypes.data, tensors, rows, heads, places, words * 8)


def numbers(rows: int, places: int, first: int) -> NDArray[np.int64]:
    """Another one in every place."""
    shape = TENSORS, rows, HEADS, places, WORDS
    return np.arange(first, first + np.prod(shape)).reshape(shape)


@given(data=st.data())
def test_rows_move_as_in_numpy(device: DeviceRuntime, data: st.DataObject) -> None:
    rows, other_rows = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    places, other_places = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    source, target = numbers(rows, places, 0), numbers(other_rows, other_places, 1_000_000)
    written = data.draw(st.lists(st.integers(0, other_rows - 1), min_size=1, unique=True))
    read = data.draw(st.lists(st.integers(0, rows - 1), min_size=len(written), max_size=len(written)))
    length = data.draw(st.integers(1, min(places, other_places)))
    expected = target.copy()
    expected[:, written, :, :length] = source[:, read, :, :length]
    one, other = block(source), block(target)
    device.move(one, one.starts(read), other, other.starts(written), length)
    device.outbox.empty()
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("most_bytes", [1, 200, 1 << 20])
def test_rows_move_within_a_block(device: DeviceRuntime, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MOVED_BYTES", most_bytes)
    array = numbers(6, 5, 0)
    expected = array.copy()
    expected[:, [1, 4, 5], :, :3] = array[:, [0, 0, 2], :, :3]
    rows = block(array)
    device.move(rows, rows.starts([0, 0, 2]), rows, rows.starts([1, 4, 5]), 3)
    np.testing.assert_array_equal(array, expected)


def test_a_read_is_what_was_written(device: DeviceRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).integers(0, 255, runtime.DESK_BYTES * 2 + 17, np.uint8)
    np.testing.assert_array_equal(device.read(array.ctypes.data, array.nbytes), array)
    constant = device.constant(np.arange(100_000))
    np.testing.assert_array_equal(device.read(constant, 800_000).view(np.int64), np.arange(100_000))


@pytest.mark.parametrize("name", NUMBER_TYPES)
def test_numbers_are_read_in_every_precision(name: Precision) -> None:
    values = np.array([0.0, 1.0, -2.5, 0.15625, 3.0e-5, 65280.0], np.float32)
    precision = NUMBER_TYPES[name]
    if name == "bf16":
        raw = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        raw = values.astype(np.float32 if name == "fp32" else np.float16)
    assert raw.itemsize == precision.size_bytes
    np.testing.assert_allclose(precision.to_float(raw.view(np.uint8)), values, rtol=2**-7)
