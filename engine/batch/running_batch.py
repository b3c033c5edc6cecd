"""One running batch: every step decodes one token of every live row, whosever it is.

A running batch knows no queue and no thread, and which row is whose is `SearchedRows`' affair.
"""

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Generic

from engine.batch.answers import Answers
from engine.batch.encoder_runs import EncoderRuns, Run
from engine.batch.measuring import measure, probe
from engine.batch.passes import Passes
from engine.batch.running import Running
from engine.batch.samples import Samples
from engine.batch.searched_rows import SearchedRows
from engine.decoder import Decoder, EncodedSource, S
from engine.errors import Late, NotFinite, NotOffered, OutOfMemory
from engine.observer import Observer, Unobserved, UnobservedWorker, WorkerObserver
from engine.processors.stage import looks_at_scores
from engine.queueing.cost import Measured, WorkerCost
from engine.request import (
    Encode,
    Encoded,
    Failed,
    Finished,
    Hypothesis,
    Probe,
    Probed,
    Request,
    Score,
    Scored,
    Timings,
    Tokens,
    Translate,
)
from kernels.steps import Arrivals
from models.encoding import Encoding, Vectors

PATIENCE_S = {"cpu": 0.0, "cuda": 0.01}
"""How long rows wait for encoder runs before they get as much time: on a device, which makes a run in few milliseconds
however many join, several runs in a row, so that more rows share the steps that follow."""
TOGETHER_S = 0.002
"""Steps that nobody need see are made together while they take no longer than this."""


class RunningBatch(Generic[S]):
    """Decodes a changing batch of requests. Used by one thread; only `fail` may be called from another."""

    def __init__(
        self,
        decoder: Decoder[S],
        rows: int,
        observer: Observer,
        worker: int,
        cost: WorkerCost | None = None,
        ended: Callable[[Request, int], None] = lambda request, computed: None,
        called: Callable[[], bool] = lambda: False,
        encodes_beside: bool = False,
        arrivals: Arrivals | None = None,
    ) -> None:
        """Has room for so many rows. worker: the number under which the observer is told of it.

        cost: learns what steps take. ended: is told of a request that gave its rows back, and how many were computed.
        called: whether somebody waits to be admitted. encodes_beside: rows wait for no long text that is to become a
        vector. arrivals: of those that may come to be
        """
        self._decoder = decoder
        self._cache = decoder.open_cache(rows)
        self._observer: Observer = observer
        self._told: WorkerObserver = observer.worker(worker)
        self._rows = SearchedRows(self._cache, rows, self._told, decoder.device)
        self._passes = Passes(decoder)
        self._passing = self._passes.waiting
        self._encoder = EncoderRuns(decoder, encodes_beside)
        self.beside_s = 0.0
        """Of a core, that runs beside steps took, and that whoever counts it has not taken away yet."""
        self._cost, self._ended = cost or WorkerCost(Measured()), ended
        self._called, self._arrivals = called, arrivals or Arrivals()
        self._computed = 0
        """Rows of all steps."""
        self._patience_s = PATIENCE_S[decoder.device.kind]
        self._waited_s = 0.0
        """Seconds that rows have waited for encoder runs, and that steps have not made up for."""
        self._earliest = inf
        """No deadline of those that run is before it."""
        self.answers = Answers()
        self._stepped: float | None = None
        """When the last step ended, if rows have waited for the next one since."""
        self.rows = self.free_rows = rows
        """Rows that no running request may come to need."""

    @property
    def most_rows(self) -> float:
        """With more than so many, one that it has would be late."""
        return self.answers.most_rows(self.rows)

    @property
    def may_encode(self) -> bool:
        """The rows that run have had as much time as encoder runs beside them, but for what they are asked to wait."""
        return self._waited_s <= self._patience_s and not self._encoder.beside

    @property
    def idle(self) -> bool:
        """Nothing is running."""
        return not (self._rows.running or self._passing or self._encoder.beside)

    def turn_s(self, requests: Sequence[Request]) -> float:
        """Seconds that it should take to admit requests and to make a step, by what such things have taken."""
        tokens = sum(len(request.source_ids) for request in (*requests, *self._encoder.beside))
        tokens += self._passes.next_tokens
        rows = self._rows.live + sum(request.rows for request in requests)
        return self._cost.token_s() * tokens + self._cost.step_s(rows)

    def admit(self, requests: Sequence[Request]) -> None:
        """Encodes requests, and answers them or takes them into the batch, where they must fit into `free_rows`."""
        self.hold(requests)
        self.answers.deliver()
        if rows := self._rows.live + sum(request.rows for request in requests):
            requests = self._encoder.start_beside(requests, self._cost.token_s(), self._cost.step_s(rows))
        if requests:
            self._take_in(self._encoder.run(requests))

    def step(self) -> None:
        """Drops requests that are cancelled or late, decodes one token of every row, and says what came of it.

        The events of a step are delivered while the next one is computed. Of steps that nobody need see, it makes some
        more before it returns: what is done around a step takes as long as a short one.
        """
        self.drop_cancelled()
        if self._encoder.beside and (run := self._encoder.take_beside(wait=not self._rows.running)):
            self.beside_s += run.spent_s
            self._take_in(run)
        step_s = self._cost.step_s(self._rows.live)
        self._drop_late(step_s)
        if self._passing and (self.may_encode or not self._rows.running):
            self._pass()
        if not self._rows.running:
            self.answers.deliver()
            return
        started, rows = time.perf_counter(), self._rows.live
        try:
            self._rows.begin_step()
        except NotOffered as error:  # of a graph that is loaded when it is first needed, and cannot be
            self._refuse(error)
            return
        self.answers.deliver()
        most = 1
        if self._rows.unseen:  # and none of them ends after a deadline
            most = int(min(TOGETHER_S, self._earliest - started) / step_s)
        arrivals = self._arrivals if self.free_rows > 0 else None
        found, steps = self._rows.end_steps(most, self._may_join, arrivals)
        ended = time.perf_counter()
        self._computed += steps * rows
        for running, hypotheses in self._rows.advance(found).items():
            self._finish(running, hypotheses, ended)
        for running, new in self._rows.newly_settled():
            self.answers.say(running.request, Tokens(new))
        for running in self._rows.start():
            if not running.sample:  # all samples of a request have their first tokens at once
                self._observer.first_token(ended - running.request.arrived, running.request.trace_id)
        self._measure(steps, rows, started, ended)
        if not self._rows.running:
            self.answers.deliver()

    def measure(self, rows: int, source_tokens: int) -> Measured:
        """Decodes sentences of nobody, and forgets them. For an engine that has nothing else to do."""
        assert self.idle
        return measure(self._decoder, self._cache, rows, source_tokens)

    def hold(self, requests: Sequence[Request]) -> None:
        """They are this batch's to answer from now on, and take their rows, though nothing was done for them yet."""
        new = self.answers.hold(requests)
        for request in new:
            if request.deadline is not None:
                self._earliest = min(self._earliest, request.deadline)
        self.free_rows -= sum(request.rows for request in new)

    def drop_cancelled(self) -> None:
        """Gives up what nobody waits for any more, and counts it."""
        for scored in self._passes.drop_cancelled() if self._passing else ():
            self.answers.forget(scored)
            if isinstance(scored, Score):  # translations gave their rows back when they were found
                self._give_back(scored, 0)
            self._observer.cancelled()
        leaving = [running for running in self._rows.running if running.request.cancelled]
        if leaving:
            self._drop(leaving)
            for left in {running.request: None for running in leaving}:
                self.answers.forget(left)
                self._observer.cancelled()

    def fail(self, error: Exception) -> None:
        """Answers every request it has with an error. The batch is of no use afterwards.

        May be called from another thread where the batch's own does not come back: nobody is answered twice.
        """
        self.answers.fail(error)
        self._rows.clear()
        self._passing.clear()
        self._encoder.forget_beside()
        self._told.holds(0, 0)

    def release(self, delivering: bool) -> list[Request]:
        """Gives away every request that is not answered. The batch is of no use afterwards, and counts nothing more.

        delivering: what the last step said is delivered first. Not for another thread, where the batch's own hangs
        """
        self._told.failed(self._unanswered())
        self._told.holds(0, 0)
        self._observer, self._told = Unobserved(), UnobservedWorker()
        self._cost, self._ended = WorkerCost(Measured()), lambda request, computed: None
        return self.answers.release(delivering)

    def _take_in(self, run: Run[S]) -> None:
        """Answers requests whose sources are encoded, or gives them rows."""
        self._cost.encoded(run.source_tokens, run.spent_s)
        if self._rows.running:
            self._waited_s += run.waited_s
        self._told.encoded(run.source_tokens, run.computed_tokens)
        for request in run.too_long:
            self._give_back(request, 0)
            self.answers.give(request, Failed(OutOfMemory(len(request.source_ids))))
        for request, source in run.encoded:
            self._join(request, source, run.started, run.ended)

    def _join(self, request: Request, source: S, started: float, ended: float) -> None:
        """Answers an encoded request, or gives it a row. The encoder ran from `started` to `ended`."""
        queued, encoded = started - request.arrived, ended - started
        if isinstance(request, Translate):
            vectors = None
            if request.encoding is not None and (vectors := _vectors(request.encoding, source)) is None:
                self._give_back(request, 0)
                self.answers.give(request, Failed(NotFinite()))
                return
            # A copy: what the encoder gave may be a part of what it gave for many.
            hidden = source.hidden().copy() if request.decoding.passes else None
            count = request.decoding.samples
            samples = Samples(count) if count > 1 else None
            for sample in range(count):
                running = Running(request, queued, encoded, ended, self._rows.steps, self._computed, vectors)
                running.samples, running.sample, running.hidden = samples, sample, hidden
                self._rows.join(running, source)
        elif isinstance(request, Encode):
            timings = Timings(queued, encoded, 0.0, 0)
            self._observer.encoded(timings, len(request.source_ids), request.trace_id)
            self._give_back(request, 0)
            vectors = _vectors(request.encoding, source)
            self.answers.give(request, Failed(NotFinite()) if vectors is None else Encoded(vectors, timings))
        elif isinstance(request, Score):
            self._passes.score(request, source.hidden(), queued, encoded, ended)
        elif isinstance(request, Probe):
            assert self._cache.live == 0, "a probe is for an engine that has nothing else to do"
            probe(self._cache, source)
            self._give_back(request, 0)
            self.answers.give(request, Probed())

    def _pass(self) -> None:
        """Looks at a part of the targets that are to be. Rows that run wait for it as for an encoder run."""
        started = time.perf_counter()
        answered = self._passes.run()
        if self._rows.running:
            self._waited_s += time.perf_counter() - started
        if answered is None:
            return
        request, event = answered
        if isinstance(request, Score):
            self._give_back(request, request.given_tokens)
        if isinstance(event, Finished):
            self._observe(request, event)
        elif isinstance(event, Scored):
            self._observer.scored(event.timings, len(request.source_ids), request.given_tokens, request.trace_id)
        self.answers.say(request, event)

    def _drop_late(self, step_s: float) -> None:
        """Answers those whose next step, which takes so many seconds, would end after their deadline."""
        end = time.perf_counter() + step_s
        if end < self._earliest:
            return
        deadlines = {running: running.request.deadline or inf for running in self._rows.running}
        late = {running: deadline for running, deadline in deadlines.items() if deadline <= end}
        self._earliest = min((deadline for deadline in deadlines.values() if deadline > end), default=inf)
        if late:
            self._drop(list(late))
            for running, deadline in late.items():
                self.answers.give(running.request, Failed(Late(step_s, deadline - end + step_s)))

    def _refuse(self, error: NotOffered) -> None:
        """Answers those that look at more scores than the best. The others step without them."""
        rows = self._rows.running
        refused = [one for one in rows if one.processed is not None or looks_at_scores(one.request.decoding)]
        if not refused:
            raise error
        self._drop(refused)
        for running in refused:
            self.answers.give(running.request, Failed(error))

    def _drop(self, leaving: Sequence[Running]) -> None:
        """Gives up their rows."""
        self._rows.drop(leaving)
        self._told.holds(self._rows.live, self._rows.tokens)
        for running in leaving:
            computed = running.computed(self._rows.steps)
            if (samples := running.samples) is not None:
                if not samples.end(running.sample, (), computed):
                    continue
                computed = samples.computed  # also of those that had ended
            self._told.dropped(computed)
            self._give_back(running.request, computed)
        if not self._rows.running:
            self._stepped, self._waited_s = None, 0.0

    def _unanswered(self) -> int:
        """Rows that were computed for what runs, samples of it that have ended included."""
        running = self._rows.running
        ended = {id(one.samples): one.samples.computed for one in running if one.samples is not None}
        return sum(one.computed(self._rows.steps) for one in running) + sum(ended.values())

    def _give_back(self, request: Request, computed: int) -> None:
        """Its rows are free; so many were computed for it."""
        self.free_rows += request.rows
        self._ended(request, computed)

    def _may_join(self) -> bool:
        """Somebody waits, for whom there may be room."""
        return self.free_rows > 0 and self._called()

    def _measure(self, steps: int, rows: int, started: float, ended: float) -> None:
        """Counts steps of so many rows, whose model runs started and ended then."""
        now = time.perf_counter()
        if not self._encoder.beside:  # a step beside a run has half of a core
            self._cost.step(rows, (now - started) / steps)
        decoding = bool(self._rows.running)
        self._waited_s = max(0.0, self._waited_s - (now - started)) if decoding else 0.0
        self._told.steps(steps, rows, now - started, ended - started)
        self._told.holds(self._rows.live, self._rows.tokens)
        if self._stepped is not None and (tokens := steps - (not decoding)):  # nobody goes on after the last one
            self._told.inter_token((now - self._stepped) / steps, tokens)
        self._stepped = now if decoding else None

    def _finish(self, running: Running, hypotheses: tuple[Hypothesis, ...], now: float) -> None:
        """Says what a request's search has found."""
        request, computed = running.request, running.computed(self._rows.steps)
        if (samples := running.samples) is not None:
            if not samples.end(running.sample, hypotheses, computed):
                return
            hypotheses, computed = samples.hypotheses, samples.computed
        looked = 0 if running.hidden is None else sum(len(one.token_ids) for one in hypotheses)
        self._give_back(request, computed + looked)
        if not hypotheses:
            self._told.answered(computed, 0)
            self.answers.say(request, Failed(NotFinite()))
            return
        timings = running.timings(now, self._rows.steps, self._computed)
        self._cost.answered(request, timings.steps)
        # A forced end token takes no step.
        self._told.answered(computed, min(len(hypotheses[0].token_ids), timings.steps))
        answer = Finished(hypotheses, timings, running.vectors)
        if running.hidden is None:
            self._observe(request, answer)
            self.answers.say(request, answer)
        else:
            self._passes.look(request, running.hidden, answer, now)

    def _observe(self, request: Request, answer: Finished) -> None:
        """It is all that becomes of a translation: nobody can cancel it any more."""
        best, timings = answer.hypotheses[0], answer.timings
        tokens = len(request.source_ids), len(best.token_ids)
        self._observer.finished(best.finish_reason, timings, *tokens, request.trace_id)


def _vectors(encoding: Encoding, source: EncodedSource) -> Vectors | None:
    """What becomes of a source. None: a value is not finite."""
    try:
        return encoding.of(source.hidden())
    except FloatingPointError:
        return None
