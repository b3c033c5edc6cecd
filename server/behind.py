"""Work that callers must not notice, on a thread that lets all others go first."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

NICE = 10
"""Of the thread: where all cores are busy it gets a ninth of what another one gets (sched(7)). More would let a thread
that holds the interpreter keep the others waiting for longer."""


async def run_behind(work: Callable[[], T]) -> T:
    """What the work gives. Threads that it starts come after all others, too, where threads have priorities: on Linux.

    Its thread is its own: without privileges no thread becomes more urgent again.
    """
    executor = ThreadPoolExecutor(1, thread_name_prefix="behind", initializer=_let_others_go_first)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, work)
    finally:
        executor.shutdown(wait=False)


def _let_others_go_first() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
