"""`python -m server`, or `dragoman serve NAME`: see `server.command`."""

import gc
import os
import sys
from collections.abc import Sequence


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
        from server.command import serve  # not before: all of the above is for what it imports

        return serve(arguments)
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
