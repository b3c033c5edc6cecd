"""How a command that writes ends when it is told to."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C meanwhile, so that it too leaves nothing half done."""
    earlier = signal.getsignal(signal.SIGTERM)
    with suppress(ValueError):  # only a process's main thread can
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, earlier)
