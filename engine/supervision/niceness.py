"""Who computes when there are fewer cores than threads that want one."""

import os
import sys
import threading

NICEST = 19


def be_nicer(by: int) -> None:
    """Makes the thread that calls so much nicer than the process's main thread (setpriority(2), nice(1)).

    Does nothing where threads have no niceness of their own: they have on Linux.
    """
    if by and sys.platform == "linux":
        main = os.getpriority(os.PRIO_PROCESS, os.getpid())
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(main + by, NICEST))
