"""An encoder run beside the steps of rows: on a thread of its own, so that no row waits for a long text to be encoded.

A text cannot be encoded by parts, and one of 512 tokens takes as long as some tens of steps. Beside them it takes half
of the worker's core instead, for twice the time.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic

from engine.decoder import Decoder, S
from engine.request import Encode, Request

LEAST_S = 0.005
"""A shorter run is not worth a thread."""


def encode_together(decoder: Decoder[S], requests: Sequence[Request]) -> list[S]:
    """In one run, on any thread. Raises OutOfMemory."""
    named = [request.named_tokens for request in requests]
    return decoder.encode([request.source_ids for request in requests], named)


@dataclass(frozen=True, slots=True)
class Run(Generic[S]):
    """What came of it."""

    sources: list[S]
    started: float
    ended: float
    spent_s: float
    """Of a core."""


class Beside(Generic[S]):
    """At most one run at a time. For one thread, the batch's own."""

    def __init__(self, encode: Callable[[Sequence[Encode]], list[S]]) -> None:
        """encode: may be called from another thread while rows are decoded."""
        self._encode = encode
        self.requests: Sequence[Encode] = ()
        """Those whose texts are being encoded."""
        self._found: Future[Run[S]] = Future()

    @property
    def ended(self) -> bool:
        """There is something to `take`."""
        return bool(self.requests) and self._found.done()

    def start(self, requests: Sequence[Encode]) -> None:
        """Encodes their texts together. The thread is as nice as the one that calls this."""
        assert not self.requests, "one run at a time"
        self.requests, self._found = requests, Future()
        # A daemon: a kernel that hangs keeps no process from its end.
        threading.Thread(target=self._run, args=(requests, self._found), name="encoder", daemon=True).start()

    def take(self) -> tuple[Sequence[Encode], Run[S]]:
        """What came of the run, for which it waits. Raises what the encoder raised."""
        requests, self.requests = self.requests, ()
        return requests, self._found.result()

    def forget(self) -> None:
        """Nobody wants what comes of it."""
        self.requests = ()

    def _run(self, requests: Sequence[Encode], found: "Future[Run[S]]") -> None:
        started, before = time.perf_counter(), time.thread_time()
        try:
            encoded = self._encode(requests)
        except BaseException as error:  # it is raised where the result is taken
            found.set_exception(error)
            return
        found.set_result(Run(encoded, started, time.perf_counter(), time.thread_time() - before))
