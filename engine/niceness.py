"""Who computes when there are fewer cores than threads that want one."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NICEST = 19


def be_nicer(by: int) -> None:
    """Makes the thread that calls so much nicer than the process's main thread (setpriority(2), nice(1)).

    Does nothing where threads have no niceness of their own: they have on Linux.
    """
    if by and sys.platform == "linux":
        main = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(main + by, NICEST))


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a model is loaded and checked."""

    share: float = 1.0
    """Of a core that it takes. Where it runs Python code it is not nicer but rests: whoever is interrupted with the
    interpreter in its hands keeps all others waiting."""
    nice: int = 0
    """So much nicer threads are that load without the interpreter."""

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Some milliseconds of work, and the rest that is due after it."""
        began_s = time.thread_time()
        yield
        time.sleep((time.thread_time() - began_s) * (1 / self.share - 1))


AT_ONCE = Pace()
BESIDE = Pace(share=0.1, nice=15)
"""While others serve, whom it is to cost a step at most: a tenth of a second of work takes a second. Nicer than that it
would not get on where other programs have the cores."""
