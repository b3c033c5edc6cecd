"""One running batch: every step decodes one token of every live row, whosever it is.

Rows 0..live-1 of the cache are in use. A request holds as many of them as its search has hypotheses, anywhere in the
batch. An engine knows no queue, no thread and no gRPC.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic

from server.decoder import Candidates, Decoder, M
from server.metrics import Metrics
from server.request import Encode, Encoded, Failed, Finished, Request, Timings, Tokens, Translate
from server.search import FINISHED, Advance, EndRules, Search, open_search


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
    steps: int = 0
    streamed: int = 0
    """Tokens already delivered."""

    def timings(self, now: float) -> Timings:
        return Timings(self.queued, self.encoded, now - self.joined, self.steps)


class Engine(Generic[M]):
    """Decodes a changing batch of requests. Used by one thread."""

    def __init__(
        self, decoder: Decoder[M], rules: EndRules, start_id: int, max_rows: int, metrics: Metrics, worker: int
    ) -> None:
        self._decoder = decoder
        self._cache = decoder.open_cache(max_rows)
        self._rules = rules
        self._start_id = start_id
        self._metrics = metrics
        self._worker = worker
        metrics.live_rows(worker, 0)
        self._running: list[_Running] = []
        self._tokens: list[int] = []
        """What each row produced last [live]."""
        self._stepped: float | None = None
        """When the last step ended, if rows have waited for the next one since."""
        self.free_rows = max_rows
        """Rows that no running request may come to need."""

    @property
    def idle(self) -> bool:
        """Nothing is running."""
        return not self._running

    def admit(self, request: Request) -> None:
        """Encodes a request, and answers it or takes it into the batch, where it must fit into `free_rows`."""
        started = time.perf_counter()
        memory = self._decoder.encode(request.source_ids)
        ended = time.perf_counter()
        queued, encoded = started - request.arrived, ended - started
        if isinstance(request, Translate):
            row = self._cache.join(memory)
            search = open_search(request.decoding, self._rules)
            self._running.append(_Running(request, search, [row], queued, encoded, ended))
            self._tokens.append(self._start_id)
            self.free_rows -= request.rows
        elif isinstance(request, Encode):
            timings = Timings(queued, encoded, 0.0, 0)
            self._metrics.encoded(timings, len(request.source_ids))
            request.deliver(Encoded(memory.mean(), timings))

    def step(self) -> None:
        """Drops cancelled requests, decodes one token of every row, and answers the requests that are finished."""
        self._drop_cancelled()
        if self.idle:
            return
        started = time.perf_counter()
        rows = len(self._tokens)
        candidates = self._cache.step(self._tokens, max(running.search.candidates for running in self._running))
        ended = time.perf_counter()
        finished = self._keep(self._advance(candidates))
        for running in self._running:
            if running.request.stream:
                self._stream(running)
        for running in finished:
            self._answer(running, ended)
        self._measure(rows, started, ended)

    def fail(self, error: Exception) -> None:
        """Answers every running request with an error. The engine is of no use afterwards."""
        for running in self._running:
            running.request.deliver(Failed(error))
        self._running.clear()
        self._metrics.live_rows(self._worker, 0)

    def _drop_cancelled(self) -> None:
        if any(running.request.cancelled for running in self._running):
            stay = [
                FINISHED
                if running.request.cancelled
                else Advance(range(len(running.rows)), [self._tokens[row] for row in running.rows])
                for running in self._running
            ]
            for _ in self._keep(stay):
                self._metrics.cancelled()

    def _advance(self, candidates: Candidates) -> list[Advance]:
        """What each running request wants of the next step."""
        token_ids, log_probs = candidates.token_ids.tolist(), candidates.log_probs.tolist()
        advances = []
        for running in self._running:
            running.steps += 1
            if running.steps == 1:
                self._metrics.first_token(time.perf_counter() - running.request.arrived)
            rows = running.rows
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
        self._metrics.live_rows(self._worker, len(rows))
        if not rows:
            self._stepped = None
        return self._regroup(advances, rows)

    def _take(self, parents: Sequence[int], rows: Sequence[int]) -> None:
        """Moves the cache: old row parents[i] continues in rows[i]."""
        taken = [0] * len(rows)
        for parent, row in zip(parents, rows, strict=True):
            taken[row] = parent
        self._cache.take(taken)
        moved = sum(parent != row for parent, row in zip(parents, rows, strict=True))
        if moved:
            self._metrics.moved_rows(moved)

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
        self._metrics.step(rows, now - started, ended - started)
        if self._stepped is not None:
            self._metrics.inter_token(now - self._stepped)
        self._stepped = None if self.idle else now

    def _stream(self, running: _Running) -> None:
        """Delivers what is settled since the last time."""
        settled = running.search.settled()
        if len(settled) > running.streamed:
            running.request.deliver(Tokens(settled[running.streamed :]))
            running.streamed = len(settled)

    def _answer(self, running: _Running, now: float) -> None:
        hypotheses, timings = running.search.hypotheses(), running.timings(now)
        best = hypotheses[0]
        self._metrics.finished(best.finish_reason, timings, len(running.request.source_ids), len(best.token_ids))
        running.request.deliver(Finished(hypotheses, timings))


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
