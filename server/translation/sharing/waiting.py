"""A content that waits for what the engine says. On the event loop."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

from engine import errors as engine_errors
from engine.request import Event, Failed, Finished, Timings, Tokens
from server.errors import (
    Draining,
    EngineFailed,
    EngineStopped,
    NotFinite,
    OptionNotOffered,
    OutOfMemory,
    Quarantined,
    ServerError,
    WouldBeLate,
)
from server.telemetry.calls import AnsweredContent, current_call
from server.translation.sources import SourceText


class Reuse(Enum):
    """Whose work an answer is. See `dragoman.v1.Reuse`."""

    NONE = ""
    SHARED = "shared"
    CACHED = "cached"


class Waiting:
    """A content that waits for its answer."""

    def __init__(self, source: SourceText, stream: bool = False) -> None:
        """`stream`: it wants to be told every token."""
        self.source, self.stream, self.reuse = source, stream, Reuse.NONE
        self.arrived, self.trace_id = time.perf_counter(), current_call().exemplar
        self.left: Callable[[Waiting], None] = _nobody
        """Is told, once, when nobody waits for it any more."""
        self._events: deque[Event] = deque()
        self._turn: asyncio.Future[None] | None = None
        """Of who waits for the next one."""

    def leave(self) -> None:
        """Nobody waits for it any more."""
        left, self.left = self.left, _nobody
        left(self)

    def tell(self, event: Event) -> None:
        """The engine says so. The time that another content's decoding took is not this one's: it has only waited."""
        if isinstance(event, Tokens) and not self.stream:
            return
        if isinstance(event, Finished) and self.reuse is Reuse.SHARED:
            waited, of = time.perf_counter() - self.arrived, event.timings
            event = Finished(event.hypotheses, Timings(0.0, 0.0, waited, of.steps, of.mean_batch_rows))
        if isinstance(event, Tokens) and self._events and isinstance(unread := self._events[-1], Tokens):
            self._events[-1] = Tokens(unread.token_ids + event.token_ids)  # one message of both is half the work
        else:
            self._events.append(event)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    async def event(self) -> Event:
        """The next event. Raises ServerError for a failure.

        Tokens that came since the last one are one event: whoever is slower than the engine is told several at once.
        """
        while not self._events:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
        event = self._events.popleft()
        if not isinstance(event, Failed):
            return event
        raise refusal(event.error) from event.error

    def answered(self, answer: str | None, timings: Timings, detokenized: float, target_tokens: int) -> AnsweredContent:
        """What is to be told of it, once it is answered."""
        return AnsweredContent(
            self.source.text,
            answer,
            timings,
            self.source.started,
            self.arrived,
            detokenized,
            len(self.source.token_ids),
            target_tokens,
            self.reuse.value,
        )


class Opened:
    """What a call has asked for, while it is answered."""

    __slots__ = ("_waiting",)

    def __init__(self, waiting: list[Waiting]) -> None:
        self._waiting = waiting

    def __enter__(self) -> list[Waiting]:
        return self._waiting

    def __exit__(self, *_: object) -> None:
        for one in self._waiting:
            one.leave()


def _nobody(waiting: Waiting) -> None:
    """Nobody is told: nobody was asked, or was told before."""


def refusal(error: Exception) -> ServerError:
    """What a caller is told of an engine's error."""
    if isinstance(error, engine_errors.OutOfMemory):
        return OutOfMemory(error.source_tokens)
    if isinstance(error, engine_errors.Late):
        return WouldBeLate(error.seconds, error.left)
    if isinstance(error, engine_errors.NotFinite):
        return NotFinite()
    if isinstance(error, engine_errors.NotOffered):
        return OptionNotOffered(error.wish)
    if isinstance(error, engine_errors.Quarantined):
        return Quarantined()
    if isinstance(error, engine_errors.Closing):
        return Draining()
    if isinstance(error, engine_errors.Stopped):
        return EngineStopped()
    return EngineFailed()
