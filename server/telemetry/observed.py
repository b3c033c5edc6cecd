"""What every call goes through, by whichever face it comes: its id, metrics, trace, log line, and what errors become.

A face, such as gRPC's, says who called (`Caller`) and runs its handlers inside of `ObservedCalls.observed`.
"""

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from server.errors import InternalError, ServerError
from server.telemetry import calls
from server.telemetry.calls import Call
from server.telemetry.logs import CallLog
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.tracing import CallSpan, NoSpan, Tracing

log = logging.getLogger(__name__)

CLASS_KEY, BULK = "x-dragoman-class", "bulk"
"""Metadata of calls that may wait for the caller's other ones."""


class Caller(Protocol):
    """Whoever made a call, as the face knows them that it came by."""

    @property
    def system(self) -> str:
        """The protocol that they speak, as spans name it."""
        ...

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

    def observed(self, method: str, caller: Caller) -> "Observed":
        """An async context that counts, traces and logs a call, and answers it with whatever error it raises.

        `method`: never a caller's
        """
        return Observed(self, method, caller)

    def guarded(self, call: Call, caller: Caller) -> "Guarded":
        """An async context that answers a call with whatever error it raises."""
        return Guarded(self, call, caller)

    async def answer(self, call: Call, caller: Caller, raised: BaseException | None) -> bool:
        """Ends a call by what it raised, if it did, and says whether that was told. Raises what nobody is told of."""
        try:
            if raised is None:
                caller.tell(call)
                return True
            error = self._error(call, caller, raised)
        except Exception as failed:
            error = self._error(call, caller, failed)
        if error is None:
            return False
        call.code, call.reason = error.status, error.reason
        self._metrics.refused(error.reason)
        await caller.refuse(call, error)
        return True

    def _error(self, call: Call, caller: Caller, raised: BaseException) -> ServerError | None:
        """What the caller is told of it. None: the caller has left, or the process ends."""
        if isinstance(raised, ServerError):
            return raised
        if isinstance(raised, asyncio.CancelledError):
            if self._ending is None:
                call.code = caller.leaving()
            return self._ending
        if not isinstance(raised, Exception):
            return None
        log.error("%s failed", call.method, exc_info=raised)
        return InternalError()

    def begin(self, method: str, caller: Caller) -> tuple[Call, CallSpan | NoSpan, asyncio.Task[object]]:
        """A call has come, in the task that runs."""
        span = self._tracing.start(method, caller.system, caller.metadata)
        call = Call(method, calls.request_id(caller.metadata), span.context)
        call.deadline, call.caller, call.bulk = caller.deadline, caller.name, caller.metadata.get(CLASS_KEY) == BULK
        calls.begin(call)
        self._metrics.rpc_started(method)
        task = self._enter()
        task.add_done_callback(lambda _: self._metrics.rpc_ended(method))  # it sends the answer, too
        return call, span, task

    def finish(self, call: Call, span: CallSpan | NoSpan, task: asyncio.Task[object]) -> None:
        """It is answered. `task`: in which it began; whoever closes a generator may do so in another."""
        seconds = call.seconds
        self._metrics.rpc_finished(call.method, call.code, seconds, call.exemplar)
        span.end(call)
        self._log.write(call, seconds)
        self._leave(task)

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


class Guarded:
    """What a call runs in that is answered with whatever error it raises.

    These two are written out: contexts of generators take three times as long, and every call goes through them.
    """

    __slots__ = ("_call", "_caller", "_calls")

    def __init__(self, calls: ObservedCalls, call: Call, caller: Caller) -> None:
        self._calls, self._call, self._caller = calls, call, caller

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, _: object, raised: BaseException | None, __: TracebackType | None) -> bool:
        return await self._calls.answer(self._call, self._caller, raised)


class Observed:
    """What a call runs in that is counted, traced and logged, too."""

    __slots__ = ("_call", "_caller", "_calls", "_method", "_span", "_task")

    def __init__(self, calls: ObservedCalls, method: str, caller: Caller) -> None:
        self._calls, self._method, self._caller = calls, method, caller

    async def __aenter__(self) -> None:
        self._call, self._span, self._task = self._calls.begin(self._method, self._caller)

    async def __aexit__(self, _: object, raised: BaseException | None, __: TracebackType | None) -> bool:
        try:
            return await self._calls.answer(self._call, self._caller, raised)
        finally:
            self._calls.finish(self._call, self._span, self._task)
