"""One running batch: every step decodes one token of every live row, whosever it is.

Rows 0..live-1 of the cache are in use. A request holds as many of them as its search has hypotheses, anywhere in the
batch. A running batch knows no queue and no thread.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Generic

from engine.batch.placing import place
from engine.batch.running import Running
from engine.decoder import Ask, Decoder, Found, S
from engine.errors import OutOfMemory
from engine.observer import Observer
from engine.request import (
    Encode,
    Encoded,
    Event,
    Failed,
    Finished,
    Probe,
    Probed,
    Request,
    Timings,
    Tokens,
    Translate,
)
from engine.search import open_search
from engine.search.search import FINISHED, Advance, Seen

log = logging.getLogger(__name__)


class RunningBatch(Generic[S]):
    """Decodes a changing batch of requests. Used by one thread; only `fail` may be called from another."""

    def __init__(self, decoder: Decoder[S], rows: int, observer: Observer, worker: int) -> None:
        """Has room for so many rows. worker: the number under which the observer is told of it."""
        self._decoder = decoder
        self._cache = decoder.open_cache(rows)
        self._observer, self._told = observer, observer.worker(worker)
        self._computed = 0
        """Rows of all steps."""
        self._held: dict[Request, None] = {}
        """Requests that are not answered. Whoever takes one out, answers it."""
        self._running: list[Running] = []
        self._tokens: list[int] = []
        """What each row is fed next [live]."""
        self._stepped: float | None = None
        """When the last step ended, if rows have waited for the next one since."""
        self._events: deque[tuple[Request, Event]] = deque()
        """What the last step said, not yet delivered."""
        self.free_rows = rows
        """Rows that no running request may come to need."""

    @property
    def idle(self) -> bool:
        """Nothing is running."""
        return not self._running

    def admit(self, requests: Sequence[Request]) -> None:
        """Encodes requests, and answers them or takes them into the batch, where they must fit into `free_rows`."""
        self.hold(requests)
        self.deliver()
        started = time.perf_counter()
        encoded = self._encode(requests)
        ended = time.perf_counter()
        source_tokens = sum(len(request.source_ids) for request, _ in encoded)
        self._told.encoded(source_tokens, sum((source.computed_tokens for _, source in encoded), 0.0))
        for request, source in encoded:
            self._join(request, source, started, ended)

    def step(self) -> None:
        """Drops cancelled requests, decodes one token of every row, and says what came of it.

        The events of a step are delivered while the next one is computed.
        """
        self._drop_cancelled()
        if self.idle:
            self.deliver()
            return
        started, rows = time.perf_counter(), len(self._tokens)
        self._cache.begin_step(self._tokens, Ask.of_all(running.ask for running in self._running))
        self.deliver()
        found = self._cache.end_step()
        ended = time.perf_counter()
        self._computed += rows
        for running in self._keep(self._advance(found)):
            self._finish(running, ended)
        self._stream()
        self._measure(rows, started, ended)
        if self.idle:
            self.deliver()

    def hold(self, requests: Sequence[Request]) -> None:
        """They are this batch's to answer from now on, and take their rows, though nothing was done for them yet."""
        new = [request for request in requests if request not in self._held]
        self._held.update(dict.fromkeys(new))
        self.free_rows -= sum(request.rows for request in new)

    def deliver(self) -> None:
        """Hands over what the last step said, if that was not done yet: `admit` and `step` do it first of all."""
        while self._events:
            request, event = self._events.popleft()
            if isinstance(event, Tokens):
                request.deliver(event)
            else:
                self._answer(request, event)

    def fail(self, error: Exception) -> None:
        """Answers every request it has with an error. The batch is of no use afterwards.

        May be called from another thread where the batch's own does not come back: nobody is answered twice.
        """
        failures = [partial(self._answer, request, Failed(error)) for request in list(self._held)]
        answers: list[Callable[[], None]] = [self.deliver, *failures]
        for answer in answers:
            try:
                answer()
            except Exception:  # whoever listens is gone; the others are answered all the same
                log.exception("a request could not be told what became of it")
        self._running = []
        self._told.holds(0, 0)

    def _answer(self, request: Request, event: Event) -> None:
        """Delivers a request's last event, unless it has had one."""
        try:
            del self._held[request]
        except KeyError:
            return
        request.deliver(event)

    def _encode(self, requests: Sequence[Request]) -> list[tuple[Request, S]]:
        """Encodes the requests together or, where memory is short, in parts. Answers those that do not fit alone."""
        if not requests:
            return []
        try:
            sources = self._decoder.encode([request.source_ids for request in requests])
            return list(zip(requests, sources, strict=True))
        except OutOfMemory as error:
            if len(requests) == 1:
                self.free_rows += requests[0].rows
                self._answer(requests[0], Failed(error))
                return []
        half = len(requests) // 2
        return [*self._encode(requests[:half]), *self._encode(requests[half:])]

    def _join(self, request: Request, source: S, started: float, ended: float) -> None:
        """Answers an encoded request, or gives it a row. The encoder ran from `started` to `ended`."""
        queued, encoded = started - request.arrived, ended - started
        if isinstance(request, Translate):
            search, row = open_search(request.decoding, request.rules), self._cache.join(source)
            self._running.append(Running(request, search, queued, encoded, ended, self._computed, [row]))
            self._tokens.append(request.rules.prefix_ids[0])
        elif isinstance(request, Encode):
            timings = Timings(queued, encoded, 0.0, 0)
            self._observer.encoded(timings, len(request.source_ids), request.trace_id)
            self._answer(request, Encoded(source.mean(), timings))
        elif isinstance(request, Probe):
            self._probe(source)
            self._answer(request, Probed())

    def _probe(self, source: S) -> None:
        """Decodes one token in a batch of its own. Which token is fed does not matter."""
        assert self._cache.live == 0, "a probe is for an engine that has nothing else to do"
        self._cache.join(source)
        self._cache.begin_step([0], Ask())
        self._cache.end_step()
        self._cache.take([])

    def _drop_cancelled(self) -> None:
        if any(running.request.cancelled for running in self._running):
            stay = [FINISHED if one.request.cancelled else one.stay(self._tokens) for one in self._running]
            for running in self._keep(stay):
                self._held.pop(running.request, None)
                self._observer.cancelled()
                self._told.dropped(running.computed)

    def _advance(self, found: Found) -> list[Advance]:
        """What each running request wants of the next step."""
        token_ids, log_probs = found.token_ids.tolist(), found.log_probs.tolist()
        advances = []
        for running in self._running:
            rows = running.rows
            seen = Seen([token_ids[row] for row in rows], [log_probs[row] for row in rows], found, rows)
            advances.append(running.advance(seen))
            if running.chooses:
                request = running.request
                self._observer.first_token(time.perf_counter() - request.arrived, request.trace_id)
        return advances

    def _keep(self, advances: list[Advance]) -> list[Running]:
        """Makes the batch what the advances say. Returns the requests that have no child, and frees their rows."""
        parents = [
            running.rows[parent]
            for running, advance in zip(self._running, advances, strict=True)
            for parent in advance.parents
        ]
        rows = place(parents)
        self._tokens = [0] * len(rows)
        for row, token in zip(rows, chain.from_iterable(advance.tokens for advance in advances), strict=True):
            self._tokens[row] = token
        self._take(parents, rows)
        if not rows:
            self._stepped = None
        left = self._regroup(advances, rows)
        self._told.holds(len(rows), sum(running.tokens for running in self._running))
        return left

    def _take(self, parents: Sequence[int], rows: Sequence[int]) -> None:
        """Moves the cache: old row parents[i] continues in rows[i]."""
        taken = [0] * len(rows)
        for parent, row in zip(parents, rows, strict=True):
            taken[row] = parent
        moved_bytes = self._cache.take(taken)
        moved = sum(parent != row for parent, row in zip(parents, rows, strict=True))
        if moved:
            self._told.moved(moved, moved_bytes)

    def _regroup(self, advances: list[Advance], rows: Sequence[int]) -> list[Running]:
        """Gives each request the rows of its children. Returns those that have none."""
        left = []
        start = 0
        for running, advance in zip(self._running, advances, strict=True):
            running.rows = rows[start : start + len(advance.parents)]
            start += len(advance.parents)
            if not advance.parents:
                left.append(running)
                self.free_rows += running.request.rows
        if left:
            self._running = [running for running in self._running if running.rows]
        return left

    def _measure(self, rows: int, started: float, ended: float) -> None:
        """Counts a step of so many rows, whose model run started and ended then."""
        now = time.perf_counter()
        self._told.step(rows, now - started, ended - started)
        if self._stepped is not None:
            self._told.inter_token(now - self._stepped)
        self._stepped = None if self.idle else now

    def _stream(self) -> None:
        """Says what is settled since the last time, to those that want it."""
        for running in self._running:
            if running.request.stream and (new := running.newly_settled()):
                self._events.append((running.request, Tokens(new)))

    def _finish(self, running: Running, now: float) -> None:
        """Says what a request's search has found."""
        request, hypotheses = running.request, running.search.hypotheses()
        timings = running.timings(now, self._computed)
        reason, tokens = hypotheses[0].finish_reason, len(hypotheses[0].token_ids)
        self._observer.finished(reason, timings, len(request.source_ids), tokens, request.trace_id)
        self._told.answered(running.computed, min(tokens, running.steps))  # a forced end token takes no step
        self._events.append((request, Finished(hypotheses, timings)))
