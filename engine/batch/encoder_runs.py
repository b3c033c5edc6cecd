"""How sources are encoded: together, in parts where memory is short, and long texts beside the steps.

A text cannot be encoded by parts, and one of 512 tokens takes as long as some tens of steps. On a thread beside them it
takes half of the worker's core instead, for twice the time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from engine.batch.beside import Beside
from engine.decoder import Decoder, S
from engine.devices.session import is_out_of_memory
from engine.errors import OutOfMemory
from engine.request import Encode, Request

LEAST_S = 0.005
"""A shorter run is not worth a thread of its own."""


@dataclass(frozen=True, slots=True)
class Run(Generic[S]):
    """What came of requests whose sources were encoded."""

    encoded: list[tuple[Request, S]]
    too_long: list[Request]
    """For which there is no memory even alone."""
    started: float
    ended: float
    spent_s: float
    """Of a core."""
    waited_s: float
    """Seconds for which no step was made."""

    @property
    def source_tokens(self) -> int:
        """Of what was encoded."""
        return sum(len(request.source_ids) for request, _ in self.encoded)

    @property
    def computed_tokens(self) -> float:
        """The same with those that only fill up."""
        return sum((source.computed_tokens for _, source in self.encoded), 0.0)


class EncoderRuns(Generic[S]):
    """Used by one thread, that of the steps."""

    def __init__(self, decoder: Decoder[S], beside: bool) -> None:
        """beside: steps wait for no long text that is to become a vector."""
        self._decoder, self._may_be_beside = decoder, beside
        self._beside: Beside[Run[S]] = Beside()
        self.beside: Sequence[Encode] = ()
        """Those whose texts are being encoded beside the steps. At most one run at a time."""

    def run(self, requests: Sequence[Request]) -> Run[S]:
        """Encodes them now."""
        started = time.perf_counter()
        encoded, too_long = self._encode(requests)
        ended = time.perf_counter()
        return Run(encoded, too_long, started, ended, ended - started, ended - started)

    def start_beside(self, requests: Sequence[Request], token_s: float, step_s: float) -> Sequence[Request]:
        """Starts a run of those that are to become vectors, if steps would wait for it longer than for a step.

        token_s, step_s: what a source token, and a step, take. Returns those that are to be encoded now.
        """
        if not self._may_be_beside or self.beside:
            return requests
        texts = [request for request in requests if isinstance(request, Encode)]
        if token_s * sum(len(request.source_ids) for request in texts) <= max(LEAST_S, step_s):
            return requests
        self.beside = texts
        self._beside.start(lambda: self._run_beside(texts))
        return [request for request in requests if request not in texts]

    def take_beside(self, wait: bool) -> Run[S] | None:
        """What came of the run beside the steps, once it has ended. Raises what the encoder raised."""
        if not (wait or self._beside.ended):
            return None
        self.beside = ()
        return self._beside.take()

    def forget_beside(self) -> None:
        """Nobody wants what comes of that run."""
        self.beside = ()

    def _run_beside(self, requests: Sequence[Request]) -> Run[S]:
        """On a thread of its own, whose time is told from that of the steps."""
        started, before = time.perf_counter(), time.thread_time()
        encoded, too_long = self._encode(requests)
        return Run(encoded, too_long, started, time.perf_counter(), time.thread_time() - before, 0.0)

    def _encode(self, requests: Sequence[Request]) -> tuple[list[tuple[Request, S]], list[Request]]:
        """On any thread. Halves what there is no memory for; what does not fit alone comes second."""
        named = [request.named_tokens for request in requests]
        try:
            sources = self._decoder.encode([request.source_ids for request in requests], named)
        except Exception as error:
            if not (isinstance(error, OutOfMemory) or is_out_of_memory(error)):
                raise
            if len(requests) == 1:
                return [], [*requests]
            half = len(requests) // 2
            (encoded, too_long), (more, more_too_long) = self._encode(requests[:half]), self._encode(requests[half:])
            return encoded + more, too_long + more_too_long
        return list(zip(requests, sources, strict=True)), []
