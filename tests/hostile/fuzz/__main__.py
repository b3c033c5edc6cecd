"""`python -m tests.hostile.fuzz`: mutated messages to every method of a real server on loopback, whose decoder copies.

Every one is answered, and never with INTERNAL, UNKNOWN or a traceback in the log. One that is not is told by its seed.
One that is late is sent once more, and again if the process had no turn for some seconds meanwhile; that is counted.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from tests.hostile.fuzz.sending import fuzz_shared


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first: the last line tells where to go on")
    parser.add_argument("--processes", type=int, default=1, help="that share them")
    parser.add_argument("--handed", action="store_true", help="to the handlers themselves, without gRPC: far sooner")
    given = parser.parse_args(arguments)
    told, done, began = Counter[str](), 0, time.monotonic()
    for part, ends in fuzz_shared(given.first, given.messages, given.processes, given.handed):
        told.update(ends)
        done += len(part)
        rate = done / (time.monotonic() - began)
        none = "0 crashes, 0 without an answer, 0 INTERNAL"
        print(f"{done} messages, {rate:.0f} a second, seeds before {part.stop}: {none}", flush=True)
    print(f"{done} messages: {dict(told.most_common())}")


if __name__ == "__main__":
    main()
