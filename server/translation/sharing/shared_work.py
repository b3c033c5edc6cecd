"""Requests to the engine, which several contents may wait for. On the event loop, but for `UnderWay.deliver`.

An answer does not depend on who shares its batch. So contents that ask the same may share a request, and an answer may
be kept for those to come.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from engine.errors import Late
from engine.request import Event, Failed, Finished, Request, Timings, Tokens, nobody
from server.telemetry.calls import Call, current_call
from server.telemetry.metrics.model import ModelMetrics
from server.translation.sharing.answer_cache import AnswerCache, Question
from server.translation.sharing.mailbox import Mailbox
from server.translation.sharing.waiting import Reuse, Waiting

MakeRequest = Callable[[tuple[int, ...], Callable[[Event], None]], Request]
Key = tuple[Question, bool]
"""What is asked, and whether it is streamed."""
NOTHING = Timings(0.0, 0.0, 0.0, 0)
"""What the engine spends on an answer that was kept."""


class Joined(NamedTuple):
    """A content that waits for a request which was made for another one."""

    deadline: float | None
    ask_again: Callable[[], None]
    """For itself."""


class UnderWay:
    """A request to the engine, and the contents that wait for it."""

    def __init__(self, mailbox: Mailbox, ended: "Callable[[UnderWay, Event | None], None]") -> None:
        """`ended` is told the last event, and None when the last content has left."""
        self._loop, self._mailbox, self._ended = asyncio.get_running_loop(), mailbox, ended
        self._waiting: dict[Waiting, Joined | None] = {}
        """In the order in which they came. None: it was made for this one."""
        self._tokens: tuple[int, ...] = ()
        """All that were streamed."""
        self.request: Request

    def deliver(self, event: Event) -> None:
        """Called on an engine thread."""
        self._mailbox.post(self._loop, self._tell, event)

    def serves(self, call: Call) -> bool:
        """Whether it is done as soon as a request of that call's own: it runs, or is of the same caller and class.

        In the queue, one of somebody else's may stand behind all that they have sent.
        """
        runs = self.request.withdraw is None
        return runs or (self.request.caller == call.caller and self.request.bulk <= call.bulk)

    def wait(self, waiting: Waiting) -> None:
        """The content that it was made for waits for it."""
        self._waiting[waiting] = None
        waiting.left = self._leave

    def join(self, waiting: Waiting, joined: Joined) -> None:
        """One more content waits for it, and is told what was streamed so far."""
        if self.request.deadline is not None:  # an early one of somebody else's is not this one's
            self.request.deadline = None if joined.deadline is None else max(joined.deadline, self.request.deadline)
        self._waiting[waiting] = joined
        waiting.left = self._leave
        if self._tokens:
            waiting.tell(Tokens(self._tokens))

    def _tell(self, event: Event) -> None:
        if isinstance(event, Tokens):
            self._tokens += event.token_ids
        else:
            self._end(event)
        for waiting, joined in self._waiting.items():
            if joined is not None and isinstance(event, Failed) and self._is_of_others(event.error, waiting, joined):
                joined.ask_again()
            else:
                waiting.tell(event)

    def _is_of_others(self, error: Exception, waiting: Waiting, joined: Joined) -> bool:
        """Whether a content that has joined would not have failed so by itself."""
        if isinstance(error, Late):  # it joined when the engine had given the request up
            return joined.deadline is None or time.perf_counter() < joined.deadline
        # Whoever is told no tokens is tried again when an engine fails, and a request whose tokens were told is not.
        return bool(self._tokens) and not waiting.stream

    def _leave(self, waiting: Waiting) -> None:
        del self._waiting[waiting]
        if not self._waiting:
            self._end(None)
            self.request.cancel()

    def _end(self, event: Event | None) -> None:
        """It and its request hold each other, and an engine: what a closed version has is free when this lets go."""
        self.request.deliver = nobody
        self._ended(self, event)


class SharedWork:
    """Takes contents to the engine, but never the same work twice."""

    def __init__(self, submit: Callable[[Request], None], cache: AnswerCache, metrics: ModelMetrics) -> None:
        """`submit` queues a request, whose events then come from another thread."""
        self._submit, self._cache, self._metrics = submit, cache, metrics
        self._mailbox = Mailbox()
        self._under_way: dict[Key, list[UnderWay]] = {}
        """The oldest first. They are of several callers, which wait each in its own place."""

    def ask(self, waiting: Waiting, make: MakeRequest, question: Question | None = None) -> None:
        """Submits a request for a content, unless its question was answered before, or soon will be.

        question: None asks the engine in any case, and for this content alone
        """
        self._ask(waiting, make, question, current_call())

    def _ask(self, waiting: Waiting, make: MakeRequest, question: Question | None, call: Call) -> None:
        if question is not None:
            if (shared := self._shared(question, waiting.stream, call)) is not None:
                waiting.reuse = Reuse.SHARED
                self._metrics.shared()
                shared.join(waiting, Joined(call.deadline, partial(self._ask, waiting, make, question, call)))
                return
            if (kept := self._cache.get(question)) is not None:
                waiting.reuse = Reuse.CACHED
                waiting.tell(Finished(kept, NOTHING))
                return
        waiting.reuse = Reuse.NONE
        key = None if question is None else (question, waiting.stream)
        under_way = UnderWay(self._mailbox, partial(self._end, key))
        under_way.request = make(waiting.source.token_ids, under_way.deliver)
        under_way.request.arrived, under_way.request.trace_id = waiting.arrived, waiting.trace_id
        under_way.request.deadline, under_way.request.caller = call.deadline, call.caller
        under_way.request.bulk = call.bulk
        under_way.wait(waiting)
        if key is not None:
            self._under_way.setdefault(key, []).append(under_way)
        self._submit(under_way.request)

    def _shared(self, question: Question, stream: bool, call: Call) -> UnderWay | None:
        """A request with the same answer. One that is not streamed is of no use to a stream."""
        useful = (True,) if stream else (True, False)
        under_way = (one for streamed in useful for one in self._under_way.get((question, streamed), ()))
        return next((one for one in under_way if one.serves(call)), None)

    def _end(self, key: Key | None, under_way: UnderWay, event: Event | None) -> None:
        if key is not None and under_way in self._under_way.get(key, ()):  # and has not ended before
            self._under_way[key].remove(under_way)
            if not self._under_way[key]:
                del self._under_way[key]
            if isinstance(event, Finished):
                self._cache.put(key[0], event.hypotheses)
