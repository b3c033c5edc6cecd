"""What every call goes through, by whichever face it comes: its id, metrics, trace, log line, and what errors become.

A face, such as gRPC's, says who called (`Caller`) and runs its handlers inside of `ObservedCalls.observed`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from server.errors import InternalError, ServerError
from server.telemetry import calls
from server.telemetry.calls import Call
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.tracing import Tracing

log = logging.getLogger(__name__)

CLASS_KEY, BULK = "x-dragoman-class", "bulk"
"""Metadata of calls that may wait for the caller's other ones."""


class Caller(Protocol):
    """Whoever made a call, as the face knows them that it came by."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """What they sent along."""
        ...

    @property
    def name(self) -> str:
        """Who shares the server with other callers."""
        ...

    @property
    def deadline(self) -> float | None:
        """When they stop to wait, by time.perf_counter."""
        ...

    def tell(self, call: Call) -> None:
        """Says how the call went, beside its answer, which is ready."""
        ...

    async def refuse(self, call: Call, error: ServerError) -> None:
        """Answers with an error. May raise whatever the face ends a call with."""
        ...

    def leaving(self) -> str:
        """Why they left, now that they have: the name of a gRPC status code."""
        ...


class ObservedCalls:
    """The calls that are being answered. Used on the event loop only."""

    def __init__(self, metrics: CallMetrics, tracing: Tracing, log: CallLog) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._log = log
        self._tasks: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending: ServerError | None = None

    @property
    def running(self) -> int:
        """Calls that are being answered."""
        return len(self._tasks)

    async def wait_until_idle(self) -> None:
        """Returns once no call is being answered."""
        await self._idle.wait()

    async def wait_for_present(self) -> None:
        """Returns once no call is being answered that is now."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def end(self, error: ServerError) -> None:
        """Answers every call that is running with an error, whatever it waits for."""
        self._ending = error
        for task in self._tasks:
            task.cancel()

    @asynccontextmanager
    async def observed(self, method: str, caller: Caller) -> AsyncIterator[None]:
        """Counts, traces and logs a call, and answers it with whatever error it raises. `method`: never a caller's."""
        span = self._tracing.start(method, caller.metadata)
        call = Call(method, calls.request_id(caller.metadata), span.context)
        call.deadline, call.caller, call.bulk = caller.deadline, caller.name, caller.metadata.get(CLASS_KEY) == BULK
        calls.begin(call)
        self._metrics.rpc_started(method)
        task = self._enter()
        task.add_done_callback(lambda _: self._metrics.rpc_ended(method))  # it sends the answer, too
        try:
            async with self.guarded(call, caller):
                yield
        finally:
            seconds = call.seconds
            self._metrics.rpc_finished(method, call.code, seconds, call.exemplar)
            span.end(call)
            self._log.write(call, seconds)
            self._leave(task)

    @asynccontextmanager
    async def guarded(self, call: Call, caller: Caller) -> AsyncIterator[None]:
        """Answers a call with whatever error it raises."""
        try:
            yield
            caller.tell(call)
        except ServerError as error:
            await self._refuse(call, caller, error)
        except asyncio.CancelledError:
            if self._ending is None:
                call.code = caller.leaving()
                raise
            await self._refuse(call, caller, self._ending)
        except Exception:
            log.exception("%s failed", call.method)
            await self._refuse(call, caller, InternalError())

    async def _refuse(self, call: Call, caller: Caller, error: ServerError) -> None:
        call.code, call.reason = error.status, error.reason
        self._metrics.refused(error.reason)
        await caller.refuse(call, error)

    def _enter(self) -> asyncio.Task[object]:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._idle.clear()
        return task

    def _leave(self, task: asyncio.Task[object]) -> None:
        self._tasks.remove(task)
        if not self._tasks:
            self._idle.set()
