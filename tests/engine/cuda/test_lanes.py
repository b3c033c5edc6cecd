"""engine.cuda.lanes: what is under way when a step is read, on CUDA that copies when it has to."""

from contextlib import closing

import numpy as np
import pytest

from engine.cuda import runtime
from engine.cuda.lanes.lane import Lane
from engine.cuda.runtime import DeviceRuntime
from engine.devices.session import CPU
from tests.engine.devices.test_transfers import cuda_transfers


@pytest.mark.parametrize("waits_for_all", [False, True])
def test_what_is_sent_while_a_step_is_under_way_keeps_its_place(
    waits_for_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """waits_for_all: the step that is read was enqueued after what was sent. Then its place is given away."""
    monkeypatch.setattr(runtime, "open_transfers", lambda device: cuda_transfers())
    with closing(DeviceRuntime(CPU, longest=4)) as device:
        lane, _ = Lane.pair(device, rows=2, candidates=8)
        lane.fetch(rows=2, k=1)
        sources = device.outbox.send(np.full(50, 7))
        if waits_for_all:
            lane.fetch(rows=2, k=1)
        lane.read(rows=2, k=1)
        others = device.outbox.send(np.full(50, 9))
        assert (sources == others) == waits_for_all
        assert device.read(others, 400).view(np.int64).tolist() == [9] * 50
        assert device.read(sources, 400).view(np.int64).tolist() == [9 if waits_for_all else 7] * 50
