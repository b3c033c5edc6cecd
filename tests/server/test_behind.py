"""server.behind: work that callers must not notice."""

import os
import sys
import threading

import pytest

from server.behind import NICE, run_behind


def priority() -> tuple[int, int]:
    """Of a thread that this one starts, and of this one."""
    found = list[int]()
    thread = threading.Thread(target=lambda: found.append(own()))
    thread.start()
    thread.join()
    return found[0], own()


def own() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own elsewhere")
async def test_its_threads_come_after_all_others_and_nobody_else_does() -> None:
    before = own()
    assert await run_behind(priority) == (max(NICE, before), max(NICE, before))
    assert own() == before


async def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_behind(lambda: 1 // 0)
