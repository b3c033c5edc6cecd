"""engine.runner: who comes when, and that every request is answered whatever happens."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import TypeVar

import pytest
from prometheus_client import CollectorRegistry

from engine.errors import Closing, Stopped
from engine.observer import Unobserved
from engine.queue import JOINING_TOKENS
from engine.request import Encode, Encoded, Event, Failed, Finished, FinishReason, Request, Timings, Tokens, Translate
from engine.runner import Runner
from models.decoding import Decoding
from server.telemetry.model_metrics import ModelFamilies, ModelMetrics
from tests.fakes import WAIT_S, CopyDecoder, CopySource, rules_of
from tests.server_process import eventually

T = TypeVar("T")

END = 0
RULES = rules_of(END)
SOURCE = (4, 5, 6, END)
ENDLESS = (7,)
"""A source without an end token is copied for ever."""


class Call:
    """A request, and what its caller is told."""

    def __init__(self, source_ids: Sequence[int] = SOURCE, num_beams: int = 1, stream: bool = False) -> None:
        decoding = Decoding(num_beams, 1, 10**9, 1.0, False)
        self._events: Queue[Event] = Queue()
        self.request: Request = Translate(
            tuple(source_ids), self._events.put, decoding=decoding, rules=RULES, stream=stream
        )

    @classmethod
    def for_vector(cls) -> "Call":
        call = cls()
        call.request = Encode(SOURCE, call._events.put)
        return call

    def answer(self) -> Event:
        """The last event, for which it waits."""
        while isinstance(event := self._events.get(timeout=WAIT_S), Tokens):
            pass
        return event

    @property
    def target(self) -> tuple[int, ...]:
        """What the request is answered with."""
        answer = self.answer()
        assert isinstance(answer, Finished), answer
        return answer.hypotheses[0].token_ids

    @property
    def error(self) -> Exception:
        """What the request fails with."""
        answer = self.answer()
        assert isinstance(answer, Failed), answer
        return answer.error

    @property
    def told_nothing(self) -> bool:
        """Nothing has come, or nothing more."""
        return self._events.empty()


class Broken(Unobserved):
    """A listener that fails when a translation is finished."""

    def finished(
        self, reason: FinishReason, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str
    ) -> None:
        raise RuntimeError("broken")


@dataclass
class RecordingDecoder(CopyDecoder):
    encoded: list[tuple[int, ...]] = field(default_factory=list)
    """Every source, in the order in which they were encoded."""
    together: list[int] = field(default_factory=list)
    """Tokens of each encoder run."""
    closed: int = 0

    def encode(self, sources: Sequence[Sequence[int]]) -> list[CopySource]:
        encoded = super().encode(sources)
        self.encoded += map(tuple, sources)
        self.together.append(sum(map(len, sources)))
        return encoded

    def close(self) -> None:
        self.closed += 1


class Service:
    """A runner over a decoder whose gate is closed."""

    def __init__(self, workers: int, max_rows: int) -> None:
        self.registry = CollectorRegistry()
        self.decoder = RecordingDecoder()
        self.gate = self.decoder.gate
        self.gate.close()
        metrics = ModelMetrics(ModelFamilies(self.registry), "copy")
        self.runner = Runner(self.decoder, max_rows, workers, metrics)

    def submit(self, *calls: Call) -> None:
        for call in calls:
            self.runner.submit(call.request)

    def sample(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, {"model": "copy", **labels})
        assert value is not None, f"no sample {name} {labels}"
        return value

    def step_until(self, condition: Callable[[], bool], workers: int) -> None:
        """Lets single steps through, of whichever worker, while all of them are held."""
        for _ in range(100):
            if condition():
                return
            self.gate.let(1)
            self.gate.wait_until_held(workers)
        raise AssertionError("100 steps did not do it")

    @property
    def live_rows(self) -> list[float]:
        """Of the first two workers."""
        return [self.sample("dragoman_rows_live", worker=worker) for worker in "01"]

    @property
    def waiting(self) -> int:
        """Calls in the queue. The metric tells the same."""
        assert self.runner.waiting == self.sample("dragoman_requests_waiting")
        return self.runner.waiting


@contextmanager
def serving(workers: int = 1, max_rows: int = 4) -> Iterator[Service]:
    service = Service(workers, max_rows)
    with service.runner:
        try:
            yield service
        finally:
            service.gate.open()


def calls_of(count: int, first: int = 10) -> list[Call]:
    """Greedy calls with a source each."""
    return [Call((first + index, END)) for index in range(count)]


def sources_of(calls: Sequence[Call]) -> list[tuple[int, ...]]:
    return [call.request.source_ids for call in calls]


# Who comes when


def test_first_come_first_served() -> None:
    with serving(max_rows=1) as service:
        calls = calls_of(5)
        service.submit(*calls)
        service.gate.wait_until_held()
        assert service.waiting == 4
        service.gate.open()
        assert [call.target for call in calls] == sources_of(calls)
        assert service.decoder.encoded == sources_of(calls)
        assert service.waiting == 0


def test_requests_join_what_runs() -> None:
    with serving() as service:
        running, joining = Call(ENDLESS), Call()
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(joining)
        service.gate.let(1)
        service.gate.wait_until_held()
        assert service.decoder.encoded == [ENDLESS, SOURCE]
        service.gate.let(len(SOURCE))
        assert joining.target == SOURCE
        assert running.told_nothing


def test_wide_beam_is_not_overtaken_by_narrow_ones() -> None:
    with serving(max_rows=4) as service:
        running, wide, narrow = Call((8, 8, 8, END)), Call((9, END), num_beams=4), calls_of(3)
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(wide, *narrow)  # there is room for all three narrow ones, and not for the wide one
        service.gate.let(1)
        service.gate.wait_until_held()
        assert service.decoder.encoded == [(8, 8, 8, END)]
        service.gate.open()
        calls = [running, wide, *narrow]
        assert [call.target for call in calls] == sources_of(calls)
        assert service.decoder.encoded == sources_of(calls)


def test_every_idle_worker_gets_work() -> None:
    with serving(workers=2) as service:
        first, second = Call(), Call((8, END))
        service.submit(first)
        service.gate.wait_until_held(1)
        service.submit(second)  # there is room beside the first
        service.gate.wait_until_held(2)
        service.gate.open()
        assert (first.target, second.target) == (SOURCE, (8, END))


def test_a_burst_is_shared_among_the_workers() -> None:
    with serving(workers=2, max_rows=16) as service:
        first, second = Call(ENDLESS), Call(ENDLESS)
        for held, call in enumerate((first, second)):
            service.submit(call)
            service.gate.wait_until_held(held + 1)
        service.submit(*(Call(ENDLESS) for _ in range(14)))
        service.step_until(lambda: service.waiting == 0, workers=2)
        service.step_until(lambda: sum(service.live_rows) == 16, workers=2)
        assert service.live_rows == [8, 8]


def test_what_fits_nowhere_else_goes_to_the_worker_with_the_most_room() -> None:
    with serving(workers=2, max_rows=8) as service:
        narrow, wide = Call(ENDLESS, num_beams=2), Call(ENDLESS, num_beams=4)
        for held, call in enumerate((narrow, wide)):
            service.submit(call)
            service.gate.wait_until_held(held + 1)
        service.submit(Call((9, END), num_beams=6))
        service.step_until(lambda: service.waiting == 0, workers=2)


def test_vectors_need_no_row() -> None:
    with serving(max_rows=1) as service:
        running, vector = Call(ENDLESS), Call.for_vector()
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(vector)
        service.gate.let(1)
        answer = vector.answer()
        assert isinstance(answer, Encoded)
        assert answer.vector.tolist() == CopySource(SOURCE).mean().tolist()


def test_cancelled_requests_in_the_queue_are_dropped() -> None:
    with serving(max_rows=1) as service:
        running, (second, third, fourth) = Call(), calls_of(3)
        service.submit(running, second, third, fourth)
        service.gate.wait_until_held()
        for call in (second, fourth):
            call.request.cancel()
        service.gate.open()
        assert (running.target, third.target) == (SOURCE, third.request.source_ids)
        service.submit(last := Call())
        assert last.target == SOURCE
        assert service.decoder.encoded == sources_of([running, third, last])
        assert service.sample("dragoman_cancellations_total") == 2
        assert service.waiting == 0
    assert second.told_nothing
    assert fourth.told_nothing


def test_a_cancelled_request_waits_no_more_wherever_it_stands() -> None:
    """Admission counts those that wait: the dead must not keep the living out."""
    with serving(max_rows=1) as service:
        service.submit(running := Call(ENDLESS))
        service.gate.wait_until_held()
        dead, alive = calls_of(7), Call()
        service.submit(alive, *dead)
        assert service.waiting == 8
        for call in dead:
            call.request.cancel()
        assert service.waiting == 1
        assert service.sample("dragoman_cancellations_total") == 7
        running.request.cancel()
        service.gate.open()
        assert alive.target == SOURCE
    assert service.decoder.encoded == [ENDLESS, SOURCE]


def test_what_is_cancelled_before_it_comes_is_never_queued() -> None:
    with serving() as service:
        early = Call()
        early.request.cancel()
        service.submit(early)
        assert service.waiting == 0
        assert service.sample("dragoman_cancellations_total") == 1
    assert early.told_nothing


def test_what_fits_no_row_is_refused_with_both_numbers() -> None:
    with serving(max_rows=4) as service:
        service.submit(wide := Call(num_beams=5))
        assert str(wide.error) == "the request needs 5 rows; the engine has 4"


def test_long_sources_are_encoded_a_few_at_a_time() -> None:
    """Their memory grows with the tokens that are encoded together."""
    with serving(max_rows=32) as service:
        service.submit(first := Call())
        service.gate.wait_until_held()
        long = [Call((*[token] * (JOINING_TOKENS // 2 - 1), END)) for token in range(1, 6)]
        service.submit(*long)
        service.gate.open()
        assert first.target == SOURCE
        assert [call.target for call in long] == [call.request.source_ids for call in long]
    assert service.decoder.together == [4, JOINING_TOKENS, JOINING_TOKENS, JOINING_TOKENS // 2]


def test_one_source_may_be_longer_than_what_joins_together() -> None:
    with serving() as service:
        service.gate.open()
        service.submit(long := Call((*[5] * (2 * JOINING_TOKENS), END)))
        assert len(long.target) == 2 * JOINING_TOKENS + 1


def test_cancelled_requests_make_room_at_the_next_step() -> None:
    with serving(max_rows=2) as service:
        running, waiting = Call(ENDLESS, num_beams=2), Call()
        service.submit(running)
        service.gate.wait_until_held()
        service.submit(waiting)
        running.request.cancel()
        service.gate.open()
        assert waiting.target == SOURCE
        assert service.sample("dragoman_cancellations_total") == 1
        assert running.told_nothing


def test_many_callers_at_once() -> None:
    with serving(workers=2, max_rows=5) as service:
        service.gate.open()
        chance = random.Random(5)
        calls, leaving = ([random_call(chance, stream) for _ in range(60)] for stream in (True, False))
        everyone = [*calls, *leaving]
        chance.shuffle(everyone)
        callers = [threading.Thread(target=service.submit, args=everyone[start::3]) for start in range(3)]
        for caller in callers:
            caller.start()
        for call in leaving:
            call.request.cancel()
        for caller in callers:
            caller.join(WAIT_S)
        eventually(lambda: service.sample("dragoman_requests_waiting") == 0)
        eventually(lambda: service.live_rows == [0, 0])
        for call in everyone:
            if call in calls or not call.told_nothing:
                assert call.target == call.request.source_ids
            assert call.told_nothing
        finished = sum(service.sample("dragoman_finished_total", reason=reason) for reason in ("end_token", "length"))
        assert finished + service.sample("dragoman_cancellations_total") == len(everyone)
        assert service.waiting == 0
        assert service.sample("dragoman_rows_capacity") == 10


def random_call(chance: random.Random, stream: bool) -> Call:
    source_ids = chance.choices(range(1, 99), k=chance.randint(0, 9))
    return Call((*source_ids, END), chance.randint(1, 5), stream)


# The end


def test_all_that_is_left_at_the_end_is_answered() -> None:
    running = [Call(ENDLESS), Call(ENDLESS, num_beams=3, stream=True)]
    waiting = [Call(num_beams=2), Call(), Call.for_vector()]
    with serving() as service:
        service.submit(running[0])
        service.gate.wait_until_held()
        service.submit(running[1], *waiting)
        service.gate.let(1)
        service.gate.wait_until_held()
        assert service.waiting == 3
    assert service.waiting == 0
    late = Call()
    service.submit(late)
    for call in [*running, *waiting, late]:
        assert isinstance(call.error, Closing)
        assert call.told_nothing
    assert not service.runner.failure.done()


# Crashes


def test_a_crash_answers_all_there_is() -> None:
    with serving(max_rows=4) as service:
        running = [Call(ENDLESS), Call(ENDLESS, num_beams=3, stream=True)]
        waiting = [Call(), Call.for_vector()]  # the vector too: it came later
        service.submit(running[0])
        service.gate.wait_until_held()
        service.submit(running[1])
        service.gate.let(1)
        service.gate.wait_until_held()
        service.submit(*waiting)
        assert not service.runner.failure.done()
        service.decoder.step_error = error = RuntimeError("broken")
        service.gate.open()
        assert [call.error for call in running] == [error, error]
        assert all(isinstance(call.error, Stopped) for call in waiting)
        assert service.runner.failure.result(WAIT_S) is error
        late = Call()
        service.submit(late)
        assert isinstance(late.error, Stopped)
        assert service.waiting == 0
    assert all(call.told_nothing for call in [*running, *waiting, late])


def test_other_workers_finish_what_they_run() -> None:
    with serving(workers=2) as service:
        calls = [Call(), Call((8, 8, END))]
        for held, call in enumerate(calls):
            service.submit(call)
            service.gate.wait_until_held(held + 1)
        service.decoder.step_error = error = RuntimeError("broken")
        service.gate.let(1)
        assert service.runner.failure.result(WAIT_S) is error
        service.decoder.step_error = None
        late = Call()
        service.submit(late)
        assert isinstance(late.error, Stopped)
        service.gate.open()
        answers = {type(answer): (call, answer) for call, answer in ((call, call.answer()) for call in calls)}
        call, answer = answers[Finished]
        assert isinstance(answer, Finished)
        assert answer.hypotheses[0].token_ids == call.request.source_ids
        assert answers[Failed][1] == Failed(error)
    assert all(call.told_nothing for call in calls)


def test_the_first_of_several_crashes_is_reported() -> None:
    with serving(workers=2) as service:
        calls = [Call(), Call()]
        for held, call in enumerate(calls):
            service.submit(call)
            service.gate.wait_until_held(held + 1)
        service.decoder.step_error = error = RuntimeError("broken")
        service.gate.open()
        assert [call.error for call in calls] == [error, error]
    assert service.runner.failure.result(WAIT_S) is error


@pytest.mark.parametrize("make", [Call, Call.for_vector], ids=["translate", "encode"])
def test_a_crash_of_the_encoder_answers_the_request_that_came(make: Callable[[], Call]) -> None:
    with serving(max_rows=4) as service:
        running, joining, behind = Call(ENDLESS), make(), Call(num_beams=4)
        service.submit(running)
        service.gate.wait_until_held()
        service.decoder.encode_error = error = RuntimeError("broken")
        service.submit(joining, behind)
        service.gate.open()
        assert joining.error is error
        assert running.error is error
        assert isinstance(behind.error, Stopped)
        assert service.runner.failure.result(WAIT_S) is error
    assert all(call.told_nothing for call in (running, joining, behind))


def test_a_failure_while_answering_leaves_nobody_without_an_answer() -> None:
    """Those that the step has finished are in no batch any more, and not answered yet."""
    decoder = CopyDecoder()
    decoder.gate.close()
    runner = Runner(decoder, 4, 1, Broken())
    with runner:
        finished, running = [Call((5, END)), Call((6, END), stream=True)], Call(ENDLESS)
        for call in (*finished, running):
            runner.submit(call.request)
        decoder.gate.open()
        assert [str(call.error) for call in (*finished, running)] == ["broken"] * 3
        assert str(runner.failure.result(WAIT_S)) == "broken"
    assert all(call.told_nothing for call in (*finished, running))


def test_a_listener_that_is_gone_costs_the_others_nothing() -> None:
    with serving(max_rows=4) as service:
        gone, staying = Call(ENDLESS), Call(ENDLESS)

        def deliver(event: Event) -> None:
            raise RuntimeError("event loop is closed")

        gone.request.deliver = deliver
        service.submit(gone, staying)
        service.gate.wait_until_held()
        service.decoder.step_error = error = RuntimeError("broken")
        service.gate.open()
        assert staying.error is error


# Closing on an event loop


async def test_closing_does_not_block_the_event_loop_and_ends_even_if_a_kernel_hangs() -> None:
    decoder = RecordingDecoder()
    decoder.gate.close()
    runner = Runner(decoder, 4, 1, Unobserved(), owns_decoder=True)
    async with runner:
        running, waiting = Call(ENDLESS), Call(num_beams=4)
        runner.submit(running.request)
        decoder.gate.wait_until_held()
        runner.submit(waiting.request)
        closing = asyncio.create_task(runner.aclose(timeout_s=0.5))
        turns = 0
        while not closing.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns > 2
        assert isinstance(running.error, Closing)
        assert isinstance(waiting.error, Closing)
        assert decoder.closed == 0  # the kernel may still write into what it owns
        decoder.gate.open()
    assert decoder.closed == 1
    assert running.told_nothing and waiting.told_nothing
