"""engine.cuda: rows that are moved, against numpy; copies that are enqueued."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.cuda import runtime
from engine.cuda.graphs import MOVE
from engine.cuda.runtime import PRECISIONS, Block, DeviceRuntime
from engine.devices.buffers import Outbox, allocate
from engine.devices.cudart import CudaRuntime
from engine.devices.session import CPU, open_session
from engine.devices.transfers import CudaTransfers, HostTransfers
from tests.engine.devices.cuda_bindings import FakeBindings

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


@pytest.mark.parametrize("name", PRECISIONS)
def test_numbers_are_read_in_every_precision(name: str) -> None:
    values = np.array([0.0, 1.0, -2.5, 0.15625, 3.0e-5, 65280.0], np.float32)
    precision = PRECISIONS[name]
    if name == "bf16":
        raw = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        raw = values.astype(np.float32 if name == "fp32" else np.float16)
    assert raw.itemsize == precision.size_bytes
    np.testing.assert_allclose(precision.to_float(raw.view(np.uint8)), values, rtol=2**-7)


# CUDA's copies, which are made when they are waited for


def cuda_transfers() -> CudaTransfers:
    return CudaTransfers(CudaRuntime(FakeBindings(late=True)), device=0)


def test_copies_are_made_in_their_order() -> None:
    transfers, there = cuda_transfers(), np.full(8, 9, np.uint8)
    staged, back = transfers.staging(8), transfers.staging(8)
    staged[:] = range(8)
    transfers.clear(there.ctypes.data, 8)
    transfers.upload(staged[2:4], there.ctypes.data + 2)
    transfers.download(there.ctypes.data, back)
    assert (there == 9).all()
    transfers.wait()
    assert back.tolist() == there.tolist() == [0, 0, 2, 3, 0, 0, 0, 0]


def test_an_event_stands_for_what_was_enqueued_before_it() -> None:
    transfers, there = cuda_transfers(), np.arange(4, dtype=np.uint8)
    first, second = transfers.staging(4), transfers.staging(4)
    events = transfers.new_event(), transfers.new_event()
    for staged, event in zip((first, second), events, strict=True):
        transfers.download(there.ctypes.data, staged)
        transfers.record(event)
    transfers.wait_for(events[0])
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 3], [0, 0, 0, 0])
    transfers.wait_for(events[1])
    assert second.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["host", "cuda"])
def test_what_is_sent_keeps_its_place_until_it_has_arrived(kind: str) -> None:
    """Also where the outbox is full, and the host has to wait."""
    transfers = HostTransfers() if kind == "host" else cuda_transfers()
    session = open_session(MOVE, CPU)
    buffer = allocate(session, "cpu", 0, 2048)
    outbox = Outbox(transfers, buffer)
    seen = transfers.staging(20 * 400)
    for number in range(20):
        address = outbox.send(np.full(50, number, np.int64))
        assert address % 256 == 0
        transfers.download(address, seen[400 * number : 400 * (number + 1)])
    transfers.wait()
    np.testing.assert_array_equal(seen.view(np.int64).reshape(20, 50), np.arange(20)[:, None] * np.ones((1, 50)))
