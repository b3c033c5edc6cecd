"""engine.devices.transfers and buffers: copies between host and device, on CUDA that makes them when it has to."""

import numpy as np
import pytest

from engine.cuda.graphs import MOVE
from engine.devices.buffers import Outbox, allocate
from engine.devices.cudart import CudaRuntime
from engine.devices.session import CPU, open_session
from engine.devices.transfers import CudaTransfers, HostTransfers
from tests.engine.devices.cuda_bindings import FakeBindings


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


def test_copies_within_the_device_are_made_in_their_order_too() -> None:
    for transfers in (HostTransfers(), cuda_transfers()):
        here, there = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
        transfers.copy(here.ctypes.data + 1, there.ctypes.data, 5)
        transfers.clear(here.ctypes.data, 8)
        transfers.wait()
        assert there.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]


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
