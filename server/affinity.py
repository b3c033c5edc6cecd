"""Where threads run on a machine of two cores: see docs/decisions/0060-two-cores-two-sides.md."""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from engine.devices.machine import usable_cores

SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds that the thread has run, and that it has waited for a core."""
LOOK_S = 0.5
NEW = 0.5
"""Weight of the last look, where the event loop's share is followed."""
SPARE, BUSY = 0.65, 0.75
"""Shares of a core that the event loop runs or waits for one: below the first it has time to spare, and above the
second it may want a core to itself. 32 callers make 0.6 where two cores serve all that they can, and ten times the
calls that can be answered 0.9."""


def two_cores() -> tuple[int, ...]:
    """Those of this process, if there are two. Empty: others than two, or less of them by a container's quota."""
    if not (hasattr(os, "sched_getaffinity") and SCHEDULED.exists()):
        return ()
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return cores if len(cores) == usable_cores() == 2 else ()


class TwoSides:
    """The event loop and first workers keep to the first core, second workers to the other, while that is best."""

    def __init__(
        self, cores: Sequence[int], engines: Callable[[], Iterable[Sequence[int]]], expresses: Callable[[], bool]
    ) -> None:
        """`cores`: the two. engines: the threads of each one's workers, the express ones' not among them.

        expresses: whether somebody is with an express worker, which is to have any core that it finds
        """
        self._cores, self._engines, self._expresses = cores, engines, expresses
        self._share = 0.0
        """Of a core, that the event loop wants."""
        self.apart = False

    async def watch(self) -> None:
        """On the event loop, which is that of the process's main thread."""
        # Threads have the cores of the thread that begins them: what is done beside the loop may run anywhere.
        anywhere = ThreadPoolExecutor(initializer=partial(_keep, 0, self._cores))
        asyncio.get_running_loop().set_default_executor(anywhere)
        wanted_s, then = _wanted_s(), time.monotonic()
        self.look(0.0)
        while True:
            await asyncio.sleep(LOOK_S)
            before, began, wanted_s, then = wanted_s, then, _wanted_s(), time.monotonic()
            self.look((wanted_s - before) / (then - began))

    def look(self, share: float) -> None:
        """Places all threads anew. share: of a core, that the loop has wanted since the last look. Called on it."""
        self._share += NEW * ((1.0 if self._expresses() else share) - self._share)
        two = [threads for threads in self._engines() if len(threads) == len(self._cores)]
        self.apart = bool(two) and self._share < (BUSY if self.apart else SPARE)
        _keep(0, self._cores[:1] if self.apart else self._cores)
        for threads in two:
            for thread, core in zip(threads, self._cores, strict=True):
                _keep(thread, (core,) if self.apart else self._cores)


def _keep(thread: int, cores: Collection[int]) -> None:
    """Has a thread run there, 0 that which calls. Does nothing where it has ended, or a core was taken away."""
    with suppress(OSError):
        os.sched_setaffinity(thread, cores)


def _wanted_s() -> float:
    """How long the thread that calls has run, or waited for a core."""
    run, waited, _ = map(int, SCHEDULED.read_text().split())
    return (run + waited) / 1e9
