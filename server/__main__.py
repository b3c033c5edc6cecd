"""`python -m server`, or `dragoman serve NAME`: see `server.command`."""

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    # gRPC reads it when it is imported. Each handshake that fails is a line of it, for which all connections wait where
    # nobody reads standard error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # NumPy's OpenBLAS starts a thread for every core when it is imported, and all spin for a while. None has work here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Pydantic would look through the metadata of all that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    # What is imported and loaded stays: the collector would go through all of it again and again. See `server.app`.
    gc.disable()
    try:
        with _signals_end_it():
            from server.command import serve  # not before: all of the above is for what it imports

            return serve(arguments)
    finally:
        gc.enable()


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """Until the server has handlers of its own. The first process of a container has none, and would miss the signal.

    Where nothing comes to be served, whoever called goes on with those of before.
    """
    former = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing was begun."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
