"""One running batch: every step decodes one token of every live row, whosever it is.

Rows 0..live-1 of the cache are in use. A request holds as many of them as its search has hypotheses, anywhere in the
batch. An engine knows no queue, no thread and no gRPC.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic

from engine.decoder import Ask, Decoder, Found, S
from engine.errors import OutOfMemory
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
from engine.search import FINISHED, Advance, EndRules, Search, open_search
from server.telemetry.metrics import Metrics


@dataclass(slots=True, eq=False)
class _Running:
    """A request in the batch."""

    request: Translate
    search: Search
    rows: Sequence[int]
    queued: float
    """Seconds from arrival to the start of the encoder run."""
    encoded: float
    """Seconds of the encoder run."""
    joined: float
    """When the encoder run ended."""
    computed_before: int
    """Rows that the engine had computed by then."""
    steps: int = 0
    computed: int = 0
    """Rows that were computed for it: one for each hypothesis and step."""
    streamed: int = 0
    """Tokens already delivered."""

    @property
    def tokens(self) -> int:
        """Source and target tokens that its rows hold."""
        return len(self.rows) * (len(self.request.source_ids) + self.steps)

    def timings(self, now: float, computed: int) -> Timings:
        """So far. `computed`: rows that the engine has computed by now."""
        mean_rows = (computed - self.computed_before) / self.steps
        return Timings(self.queued, self.encoded, now - self.joined, self.steps, mean_rows)


class RunningBatch(Generic[S]):
    """Decodes a changing batch of requests. Used by one thread."""

    def __init__(
        self, decoder: Decoder[S], rules: EndRules, start_id: int, max_rows: int, metrics: Metrics, worker: int
    ) -> None:
        self._decoder = decoder
        self._cache = decoder.open_cache(max_rows)
        self._rules = rules
        self._start_id = start_id
        self._metrics = metrics
        self._worker = metrics.worker(worker)
        self._computed = 0
        """Rows of all steps."""
        self._running: list[_Running] = []
        self._tokens: list[int] = []
        """What each row produced last [live]."""
        self._stepped: float | None = None
        """When the last step ended, if rows have waited for the next one since."""
        self._joining: list[Request] = []
        """Requests that are being admitted: neither running yet nor answered."""
        self._events: list[tuple[Request, Event]] = []
        """What the last step said, not yet delivered."""
        self.free_rows = max_rows
        """Rows that no running request may come to need."""

    @property
    def idle(self) -> bool:
        """Nothing is running."""
        return not self._running

    def admit(self, requests: Sequence[Request]) -> None:
        """Encodes requests, and answers them or takes them into the batch, where they must fit into `free_rows`."""
        self._joining = list(requests)
        self.free_rows -= sum(request.rows for request in requests)
        self.deliver()
        started = time.perf_counter()
        encoded = self._encode(requests)
        ended = time.perf_counter()
        source_tokens = sum(len(request.source_ids) for request, _ in encoded)
        self._worker.encoded(source_tokens, sum((memory.computed_tokens for _, memory in encoded), 0.0))
        for request, memory in encoded:
            self._join(request, memory, started, ended)
            self._joining.remove(request)

    def step(self) -> None:
        """Drops cancelled requests, decodes one token of every row, and answers the requests that are finished.

        The events of a step are delivered while the next one is computed.
        """
        self._drop_cancelled()
        if self.idle:
            self.deliver()
            return
        started = time.perf_counter()
        rows = len(self._tokens)
        self._cache.begin_step(self._tokens, Ask.of_all(running.search.ask for running in self._running))
        self.deliver()
        candidates = self._cache.end_step()
        ended = time.perf_counter()
        self._computed += rows
        finished = self._keep(self._advance(candidates))
        for running in self._running:
            if running.request.stream:
                self._stream(running)
        for running in finished:
            self._answer(running, ended)
        self._measure(rows, started, ended)
        if self.idle:
            self.deliver()

    def fail(self, error: Exception) -> None:
        """Answers every request it has with an error. The engine is of no use afterwards."""
        self.deliver()
        for request in [*(running.request for running in self._running), *self._joining]:
            request.deliver(Failed(error))
        self._running.clear()
        self._worker.holds(0, 0)

    def _encode(self, requests: Sequence[Request]) -> list[tuple[Request, S]]:
        """Encodes the requests together or, where memory is short, in parts. Answers those that do not fit alone."""
        try:
            memories = self._decoder.encode([request.source_ids for request in requests])
            return list(zip(requests, memories, strict=True))
        except OutOfMemory as error:
            if len(requests) == 1:
                self._joining.remove(requests[0])
                self.free_rows += requests[0].rows
                requests[0].deliver(Failed(error))
                return []
        half = len(requests) // 2
        return [*self._encode(requests[:half]), *self._encode(requests[half:])]

    def _join(self, request: Request, source: S, started: float, ended: float) -> None:
        """Answers an encoded request, or gives it a row. The encoder ran from `started` to `ended`."""
        queued, encoded = started - request.arrived, ended - started
        if isinstance(request, Translate):
            row = self._cache.join(source)
            search = open_search(request.decoding, self._rules)
            self._running.append(_Running(request, search, [row], queued, encoded, ended, self._computed))
            self._tokens.append(self._start_id)
        elif isinstance(request, Encode):
            timings = Timings(queued, encoded, 0.0, 0)
            self._metrics.encoded(timings, len(request.source_ids), request.trace_id)
            request.deliver(Encoded(source.mean(), timings))
        elif isinstance(request, Probe):
            self._probe(source)
            request.deliver(Probed())

    def _probe(self, source: S) -> None:
        """Decodes one token in a batch of its own."""
        assert self._cache.live == 0, "a probe is for an engine that has nothing else to do"
        self._cache.join(source)
        self._cache.begin_step([self._start_id], Ask())
        self._cache.end_step()
        self._cache.take([])

    def deliver(self) -> None:
        """Hands over what the last step said, if that was not done yet: `admit` and `step` do it first of all."""
        for request, event in self._events:
            request.deliver(event)
        self._events.clear()

    def _drop_cancelled(self) -> None:
        if any(running.request.cancelled for running in self._running):
            stay = [
                FINISHED
                if running.request.cancelled
                else Advance(range(len(running.rows)), [self._tokens[row] for row in running.rows])
                for running in self._running
            ]
            for running in self._keep(stay):
                self._metrics.cancelled()
                self._worker.dropped(running.computed)

    def _advance(self, candidates: Found) -> list[Advance]:
        """What each running request wants of the next step."""
        token_ids, log_probs = candidates.token_ids.tolist(), candidates.log_probs.tolist()
        advances = []
        for running in self._running:
            request, rows = running.request, running.rows
            running.steps += 1
            running.computed += len(rows)
            if running.steps == 1:
                self._metrics.first_token(time.perf_counter() - request.arrived, request.trace_id)
            advances.append(running.search.advance([token_ids[row] for row in rows], [log_probs[row] for row in rows]))
        return advances

    def _keep(self, advances: list[Advance]) -> list[_Running]:
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
        self._worker.holds(len(rows), sum(running.tokens for running in self._running))
        return left

    def _take(self, parents: Sequence[int], rows: Sequence[int]) -> None:
        """Moves the cache: old row parents[i] continues in rows[i]."""
        taken = [0] * len(rows)
        for parent, row in zip(parents, rows, strict=True):
            taken[row] = parent
        moved_bytes = self._cache.take(taken)
        moved = sum(parent != row for parent, row in zip(parents, rows, strict=True))
        if moved:
            self._worker.moved(moved, moved_bytes)

    def _regroup(self, advances: list[Advance], rows: Sequence[int]) -> list[_Running]:
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
        self._worker.step(rows, now - started, ended - started)
        if self._stepped is not None:
            self._worker.inter_token(now - self._stepped)
        self._stepped = None if self.idle else now

    def _stream(self, running: _Running) -> None:
        """Delivers what is settled since the last time."""
        settled = running.search.settled()
        if len(settled) > running.streamed:
            self._events.append((running.request, Tokens(settled[running.streamed :])))
            running.streamed = len(settled)

    def _answer(self, running: _Running, now: float) -> None:
        request, hypotheses = running.request, running.search.hypotheses()
        timings = running.timings(now, self._computed)
        reason, tokens = hypotheses[0].finish_reason, len(hypotheses[0].token_ids)
        self._metrics.finished(reason, timings, len(request.source_ids), tokens, request.trace_id)
        self._worker.answered(running.computed, min(tokens, running.steps))  # a forced end token takes no step
        self._events.append((request, Finished(hypotheses, timings)))


def place(parents: Sequence[int]) -> list[int]:
    """Chooses a row for every child so that the fewest rows are copied.

    parents: the row each child continues. Returns each child's row, a permutation of 0..len(parents)-1.
    The first child of a row stays in it, if it is still among the live rows. The others overwrite rows that have no
    child there, so that no row is read after it was overwritten.
    """
    live = len(parents)
    rows = [-1] * live
    taken = [False] * live
    for child, parent in enumerate(parents):
        if parent < live and not taken[parent]:
            rows[child] = parent
            taken[parent] = True
    free = (row for row in range(live) if not taken[row])
    return [next(free) if row < 0 else row for row in rows]
