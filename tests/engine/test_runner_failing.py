"""engine.runner: whatever happens, every request is answered."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from engine.errors import Closing, Stopped
from engine.observer import Unobserved
from engine.request import Event, Failed, Finished
from engine.runner import Runner
from tests.engine.calling import (
    END,
    ENDLESS,
    Broken,
    Call,
    RecordingDecoder,
    serving,
)
from tests.fakes import WAIT_S, CopyDecoder
from tests.server_process import eventually

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


def test_who_left_just_before_the_end_counts() -> None:
    leaving = Call(ENDLESS, num_beams=2)
    with serving() as service:
        service.submit(leaving)
        service.gate.wait_until_held()
        service.gate.let(1)
        service.gate.wait_until_held()
        leaving.request.cancel()
        closing = threading.Thread(target=service.runner.close)
        closing.start()
        eventually(lambda: service.runner._supervisor.workers[0].leaving)
        service.gate.open()
        closing.join(WAIT_S)
        assert service.sample("dragoman_cancellations_total") == 1
        computed = service.sample("dragoman_rows_computed_total")
        assert service.sample("dragoman_rows_wasted_total", reason="cancelled") == computed > 0
    assert leaving.told_nothing


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
        with runner._work:  # no worker takes one of them before the others have come
            for call in (*finished, running):
                runner.submit(call.request)
        decoder.gate.open()
        assert [str(call.error) for call in (*finished, running)] == ["broken"] * 3
        assert str(runner.failure.result(WAIT_S)) == "broken"
    assert all(call.told_nothing for call in (*finished, running))


def test_a_listener_that_is_gone_costs_the_others_nothing() -> None:
    with serving(max_rows=2) as service:
        gone, staying, left, waiting = Call(ENDLESS), Call(ENDLESS), Call(), Call()

        def deliver(event: Event) -> None:
            raise RuntimeError("event loop is closed")

        gone.request.deliver = left.request.deliver = deliver
        service.submit(gone)
        service.gate.wait_until_held()
        service.submit(staying)
        service.gate.let(1)
        service.gate.wait_until_held()
        service.submit(left, waiting)
        service.decoder.step_error = error = RuntimeError("broken")
        service.gate.open()
        assert staying.error is error
        assert isinstance(waiting.error, Stopped)


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
        await asyncio.sleep(0)  # it has its turn, and waits elsewhere
        assert not closing.done()
        await closing
        assert isinstance(running.error, Closing)
        assert isinstance(waiting.error, Closing)
        assert decoder.closed == 0  # the kernel may still write into what it owns
        decoder.gate.open()
    assert decoder.closed == 1
    assert running.told_nothing and waiting.told_nothing
