"""One arena of malloc for all threads of a server."""

import ctypes
import os
from contextlib import suppress

M_ARENA_MAX = -8
"""mallopt's number for it, in glibc's malloc.h."""
TOLD = "MALLOC_ARENA_MAX"
"""Of the environment: whoever sets it knows better."""


def share_arena() -> None:
    """Call it before there are threads. Where the C library is not glibc, nothing happens.

    Each of gRPC's threads would have an arena of its own, and what one of them frees another cannot use: messages that
    come in, and are given up, would take half as much again. Small pieces are kept by each thread in any case.
    """
    if TOLD not in os.environ:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
