"""`python -m bench.fleet.paced_server`: a server whose engine waits, as for a device of its own.

What it computes beside that hardly counts, so that several leave each other the cores of one machine, as servers with
machines or GPUs of their own do.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.batch.encoder_runs import EncoderRuns
from engine.batch.searched_rows import SearchedRows
from engine.decoder import Found
from engine.queueing.cost import Measured
from engine.request import Request
from kernels.steps import Arrivals
from server.__main__ import main

PACE = Measured(fixed=0.008, each=0.0004, token=0.0008)
"""Some ten times what int8 takes: what is computed then hardly counts."""

end_steps, encode = SearchedRows.end_steps, EncoderRuns[Any]._encode


def end_step_slowly(
    rows: SearchedRows[Any], most: int, called: Callable[[], bool], arrivals: Arrivals | None
) -> tuple[Found, int]:
    """Stands for the end of a step. None takes so little that several are made together."""
    time.sleep(PACE.fixed + PACE.each * rows.live)
    return end_steps(rows, 1, called, arrivals)


def encode_slowly(
    runs: EncoderRuns[Any], requests: Sequence[Request]
) -> tuple[list[tuple[Request, Any]], list[Request]]:
    """Stands for an encoder run."""
    time.sleep(PACE.token * sum(len(request.source_ids) for request in requests))
    return encode(runs, requests)


if __name__ == "__main__":
    SearchedRows.end_steps = end_step_slowly  # type: ignore[assignment, method-assign]
    EncoderRuns._encode = encode_slowly  # type: ignore[assignment, method-assign]
    sys.exit(main(sys.argv[1:]))
