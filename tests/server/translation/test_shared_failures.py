"""Contents that share a request which fails: whose failure it is not, is asked for anew."""

import asyncio
import time

import pytest

from engine.errors import Late
from engine.request import Failed, Tokens, Translate
from server import errors
from server.telemetry.calls import Call, begin
from server.translation.answer import Translation
from server.translation.sharing.waiting import Reuse
from tests.server.translation.engine import copy, deliver
from tests.server.translation.test_shared_work import TEXT, Side, text_of
from tests.serving import eventually


async def test_who_was_told_nothing_is_tried_again_where_a_stream_that_it_joined_fails() -> None:
    side = Side()
    stream = side.stream()
    [streamed] = await side.engine.submitted(1)
    calls = [side.translate(TEXT), side.translate(TEXT)]
    await eventually(lambda: side.shared == 2)
    deliver(streamed, Tokens(streamed.source_ids[:1]), Failed(RuntimeError("the engine crashed")))
    with pytest.raises(errors.EngineFailed):
        await stream
    _, again = await side.engine.submitted(2)
    assert isinstance(again, Translate) and not again.stream
    deliver(again, copy(again))
    answers = [one for call in calls for one in await call]
    assert [text_of(one) for one in answers] == [TEXT, TEXT]
    assert [one.reuse for one in answers] == [Reuse.NONE, Reuse.SHARED]
    assert not side.translator._work._under_way


@pytest.mark.parametrize(
    ("deadline_s", "now_s", "tried"), [(None, 90.0, True), (100.0, 90.0, True), (100.0, 110.0, False)]
)
async def test_whose_deadline_is_later_does_not_fail_with_the_one_that_was_late(
    monkeypatch: pytest.MonkeyPatch, deadline_s: float | None, now_s: float, tried: bool
) -> None:
    """It joined when the engine had given the request up, and had not been heard yet."""
    side = Side()
    began = time.perf_counter()
    begin(Call("m", deadline=began + 50))
    first = side.translate(TEXT)
    [late] = await side.engine.submitted(1)
    begin(Call("m", deadline=None if deadline_s is None else began + deadline_s))
    second = side.translate(TEXT)
    await eventually(lambda: side.shared == 1)
    monkeypatch.setattr("server.translation.sharing.shared_work.time.perf_counter", lambda: began + now_s)
    deliver(late, Failed(Late(0.1, -1.0)))
    with pytest.raises(errors.WouldBeLate):
        await first
    if tried:
        _, again = await side.engine.submitted(2)
        deliver(again, copy(again))
        assert text_of((await second)[0]) == TEXT
    else:
        with pytest.raises(errors.WouldBeLate):
            await second


async def test_a_request_has_the_latest_deadline_of_those_who_wait_for_it() -> None:
    side, began = Side(), time.perf_counter()
    told, calls = list[float | None](), list[asyncio.Task[list[Translation]]]()
    for deadline_s in (50.0, 100.0, 70.0, None, 60.0):
        begin(Call("m", deadline=None if deadline_s is None else began + deadline_s))
        calls.append(side.translate(TEXT))
        await side.idle()
        [request] = await side.engine.submitted(1)
        await eventually(lambda: (side.shared or 0) == len(calls) - 1)
        told.append(None if request.deadline is None else round(request.deadline - began))
    deliver(request, copy(request))
    await asyncio.gather(*calls)
    assert told == [50, 100, 100, None, None]
