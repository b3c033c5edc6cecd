"""Which core a thread keeps to, where a server has two: see docs/decisions/0060-two-cores-two-sides.md."""

import os
from collections.abc import Collection
from contextlib import suppress

from engine.devices.machine import usable_cores


def cores_apart() -> tuple[int, ...]:
    """Core of each worker of a server, the first one the event loop's too. Ask before any thread keeps to one.

    Empty: the system places threads. So it is where there are not two cores, or where a container may use less of them.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return cores if len(cores) == usable_cores() == 2 else ()


def keep_to(cores: Collection[int]) -> None:
    """Has the thread that calls run there, and those that it begins (sched_setaffinity(2)). None: nothing is changed.

    Does nothing where a core has been taken from the process meanwhile.
    """
    if cores:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
