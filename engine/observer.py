"""What an engine tells of its work. Prometheus is one listener; who needs none takes `Unobserved`.

Every method may be called from any engine thread, between two steps: it takes some microseconds, and does not raise.
A `trace_id` names the trace that a request belongs to, if there is one.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from engine.request import FinishReason, Timings
from kernels.library import Counters


class RestartCause(Enum):
    """Why a worker had to begin anew."""

    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory"

    @classmethod
    def of(cls, hung: bool, memory: bool) -> "RestartCause":
        return cls.HANG if hung else cls.MEMORY if memory else cls.CRASH


class WorkerObserver(Protocol):
    """Is told of one running batch."""

    def encoded(self, source_tokens: int, computed_tokens: float) -> None:
        """The encoder has computed so many tokens for sources of so many."""
        ...

    def steps(self, made: int, rows: int, seconds: float, model_seconds: float) -> None:
        """So many times one token of each of so many rows is decoded.

        `model_seconds` of the `seconds` of all these steps were spent in the model.
        """
        ...

    def inter_token(self, seconds: float, steps: int) -> None:
        """Rows that stay in a batch got so many tokens, each so long after the one before."""
        ...

    def holds(self, rows: int, tokens: int) -> None:
        """So many rows are in use, and hold so many source and target tokens."""
        ...

    def moved(self, rows: int, size_bytes: int) -> None:
        """So many cache rows were copied."""
        ...

    def answered(self, computed_rows: int, best_rows: int) -> None:
        """So many rows were computed for an answer, and so many of them for its best hypothesis."""
        ...

    def dropped(self, computed_rows: int) -> None:
        """So many rows were computed for a request that nobody waited for any more."""
        ...

    def failed(self, computed_rows: int) -> None:
        """So many rows were computed for requests that are tried again, or refused: the worker has failed."""
        ...


class Observer(Protocol):
    """Is told of an engine."""

    def worker(self, number: int) -> WorkerObserver:
        """Who is told of the running batch of this number."""
        ...

    def capacity(self, rows: int, row_tokens: int) -> None:
        """All workers together have so many rows, each with room for so many source and target tokens."""
        ...

    def memory(self, budget_bytes: int, limit_bytes: int) -> None:
        """The process may come to take so much memory of the host, of so much that it may take."""
        ...

    def kernels(self, counters: Callable[[], Counters]) -> None:
        """What our own operators, or a screened graph, have counted may be asked at any time, from any thread.

        Operators count for the process: models of which they run have equal `counters`.
        """
        ...

    def waiting(self, requests: int) -> None:
        """So many requests are in the queue."""
        ...

    def cancelled(self) -> None:
        """A request is dropped because nobody waits for it any more."""
        ...

    def restarted(self, cause: RestartCause) -> None:
        """A worker has failed, and began anew."""
        ...

    def retried(self, requests: int) -> None:
        """So many requests of a worker that failed are tried again."""
        ...

    def quarantined(self) -> None:
        """A request is refused because the engine has failed twice with it, or with one that is equal."""
        ...

    def encoded(self, timings: Timings, source_tokens: int, trace_id: str) -> None:
        """A request is encoded, be it into a vector or on its way to a translation."""
        ...

    def scored(self, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str) -> None:
        """The given targets of a request are scored."""
        ...

    def first_token(self, seconds: float, trace_id: str) -> None:
        """A request has its first target token, so long after it arrived."""
        ...

    def finished(
        self, reason: FinishReason, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str
    ) -> None:
        """A request is translated. Reason and target tokens are the best hypothesis's."""
        ...


class Unobserved:
    """Nobody listens, neither to an engine nor to a worker."""

    def worker(self, number: int) -> "UnobservedWorker":
        return UnobservedWorker()

    def capacity(self, rows: int, row_tokens: int) -> None: ...

    def memory(self, budget_bytes: int, limit_bytes: int) -> None: ...

    def kernels(self, counters: Callable[[], Counters]) -> None: ...

    def waiting(self, requests: int) -> None: ...

    def cancelled(self) -> None: ...

    def restarted(self, cause: RestartCause) -> None: ...

    def retried(self, requests: int) -> None: ...

    def quarantined(self) -> None: ...

    def encoded(self, timings: Timings, source_tokens: int, trace_id: str) -> None: ...

    def scored(self, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str) -> None: ...

    def first_token(self, seconds: float, trace_id: str) -> None: ...

    def finished(
        self, reason: FinishReason, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str
    ) -> None: ...


class UnobservedWorker:
    """Nobody listens."""

    def encoded(self, source_tokens: int, computed_tokens: float) -> None: ...

    def steps(self, made: int, rows: int, seconds: float, model_seconds: float) -> None: ...

    def inter_token(self, seconds: float, steps: int) -> None: ...

    def holds(self, rows: int, tokens: int) -> None: ...

    def moved(self, rows: int, size_bytes: int) -> None: ...

    def answered(self, computed_rows: int, best_rows: int) -> None: ...

    def dropped(self, computed_rows: int) -> None: ...

    def failed(self, computed_rows: int) -> None: ...
