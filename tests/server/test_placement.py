"""What the settings say of memory, beside what there is."""

import pytest

from engine.devices.memory import memory_limit
from engine.loading.budget import megabytes
from server.placement import warn_of_memory


def test_more_memory_than_there_is_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    limit = memory_limit()
    assert limit is not None
    there = megabytes(limit)
    for asked in (None, 1, there):
        warn_of_memory(asked)
    assert not caplog.messages
    warn_of_memory(there + 1)
    [told] = caplog.messages
    assert told.startswith(f"memory_mb is {there + 1}, and the machine or container has {there} MB: ")
