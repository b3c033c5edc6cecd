"""Contents that ask the same: one request for all of them, whoever comes late or leaves early."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from prometheus_client import CollectorRegistry

from engine.errors import OutOfMemory
from engine.request import Failed, Tokens, Translate
from models.decoding import Options
from server import errors
from server.admission.permits import Admission
from server.telemetry.calls import Call, begin
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.translation.answer import TextDelta, Translation
from server.translation.encoding.embeddings import EncodingOptions
from server.translation.options import Route
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.sharing.waiting import Reuse
from server.translation.translator import Translator
from tests.fakes import rules_of
from tests.server.translation.engine import OPTIONS, ROUTE, TIMINGS, Engine, copy, deliver
from tests.serving import MODEL, eventually, tokenizer

TEXT = "Two small dogs bark."


class Side:
    """A translator that keeps answers, and an engine that answers when it is told to."""

    def __init__(self, cache_bytes: int = 1_000_000) -> None:
        self.registry, self.engine = CollectorRegistry(), Engine()
        metrics = ModelMetrics(ModelFamilies(self.registry), "copy")
        cache = AnswerCache(cache_bytes, AnswerCacheMetrics(self.registry))
        admission = Admission(100, self.engine)
        self.translator = Translator(MODEL, tokenizer(), rules_of(0), admission, self.engine.submit, metrics, cache)

    def translate(
        self, *contents: str, route: Route = ROUTE, options: Options = OPTIONS, no_cache: bool = False
    ) -> asyncio.Task[list[Translation]]:
        return asyncio.create_task(self.translator.translate(contents, route, options, no_cache))

    def stream(self, content: str = TEXT) -> asyncio.Task[list[TextDelta | Translation]]:
        async def events() -> list[TextDelta | Translation]:
            return [event async for event in self.translator.stream(content, ROUTE, OPTIONS)]

        return asyncio.create_task(events())

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    @property
    def shared(self) -> float | None:
        return self.sample("dragoman_answers_shared_total", model="copy")

    async def idle(self) -> None:
        """Whatever was asked is with the engine by now."""
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def side() -> Side:
    return Side()


def text_of(translation: TextDelta | Translation) -> str:
    assert isinstance(translation, Translation)
    return translation.hypotheses[0].text


async def test_equal_contents_of_one_call_and_of_others_are_one_request(side: Side) -> None:
    calls = [side.translate(TEXT, "Rain.", TEXT), side.translate(TEXT)]
    await side.idle()
    dogs, rain = await side.engine.submitted(2)
    deliver(rain, copy(rain))
    deliver(dogs, copy(dogs))
    [first, wet, second], [third] = await asyncio.gather(*calls)
    assert [text_of(one) for one in (first, wet, second, third)] == [TEXT, "Rain.", TEXT, TEXT]
    assert [one.reuse for one in (first, wet, second, third)] == [Reuse.NONE, Reuse.NONE, Reuse.SHARED, Reuse.SHARED]
    assert side.shared == 2


@pytest.mark.parametrize(
    ("runs", "other", "requests"),
    [
        (False, Call("m", caller="a"), 1),
        (False, Call("m", caller="b"), 2),
        (False, Call("m", caller="a", bulk=True), 1),
        (True, Call("m", caller="b"), 1),
    ],
    ids=["the same caller", "another one", "a less urgent one", "another one while it runs"],
)
async def test_nobody_waits_in_the_place_of_another_caller(side: Side, runs: bool, other: Call, requests: int) -> None:
    begin(Call("m", caller="a"))
    first = side.translate(TEXT)
    [request] = await side.engine.submitted(1)
    request.withdraw = None if runs else lambda request: None
    begin(other)
    calls = [first, side.translate(TEXT), side.translate(TEXT)]
    await eventually(lambda: side.shared == 3 - requests)
    for one in await side.engine.submitted(requests):
        assert one.caller == other.caller or one is request
        deliver(one, copy(one))
    assert [text_of(one) for [one] in await asyncio.gather(*calls)] == [TEXT] * 3
    assert not side.translator._work._under_way


async def test_an_urgent_text_does_not_wait_for_bulk(side: Side) -> None:
    begin(Call("m", caller="a", bulk=True))
    calls = [side.translate(TEXT)]
    [request] = await side.engine.submitted(1)
    request.withdraw = lambda request: None
    begin(Call("m", caller="a"))
    calls.append(side.translate(TEXT))
    for one in await side.engine.submitted(2):
        deliver(one, copy(one))
    await asyncio.gather(*calls)


async def test_who_waits_for_another_has_timings_of_its_own(side: Side) -> None:
    first = side.translate(TEXT)
    [request] = await side.engine.submitted(1)
    second = side.translate(TEXT)
    await eventually(lambda: side.shared == 1)
    deliver(request, copy(request))
    [one], [two] = await first, await second
    assert (one.timings.queue, one.timings.encode, one.timings.decode) == (0.001, 0.002, 0.003)
    assert (two.timings.queue, two.timings.encode, two.timings.steps) == (0.0, 0.0, TIMINGS.steps)
    assert two.timings.decode > 0 and two.timings.tokenize > 0


async def test_who_has_an_answer_holds_no_engine() -> None:
    side = Side()
    call, held = side.translate(TEXT, no_cache=True), weakref.ref(side.engine)
    [request] = await side.engine.submitted(1)
    deliver(request, copy(request))
    [translation] = await call
    assert text_of(translation) == TEXT
    gc.disable()  # what is free only once cycles are looked for is there for as long as nobody looks
    try:
        del side, call
        await asyncio.sleep(0)
        assert held() is None
    finally:
        gc.enable()


async def test_an_answer_is_kept_and_says_so(side: Side) -> None:
    call = side.translate(TEXT)
    [request] = await side.engine.submitted(1)
    deliver(request, copy(request))
    [first] = await call
    [second] = await side.translate(TEXT)
    assert side.engine.requests == [request]
    assert (second.hypotheses, second.source_tokens, second.reuse) == (
        first.hypotheses,
        first.source_tokens,
        Reuse.CACHED,
    )
    told = second.timings
    assert (told.queue, told.encode, told.decode, told.steps, told.total) == (0.0, 0.0, 0.0, 0, 0.0)
    assert told.tokenize > 0 and told.detokenize > 0
    assert side.sample("dragoman_answer_cache_hits_total") == side.sample("dragoman_answer_cache_misses_total") == 1


async def test_a_kept_answer_streams(side: Side) -> None:
    call = side.translate(TEXT)
    [request] = await side.engine.submitted(1)
    deliver(request, copy(request))
    await call
    delta, last = await side.stream()
    assert delta == TextDelta(TEXT)
    assert isinstance(last, Translation) and last.reuse is Reuse.CACHED


async def test_no_cache_is_work_of_its_own(side: Side) -> None:
    calls = [side.translate(TEXT), side.translate(TEXT, TEXT, no_cache=True), side.translate(TEXT)]
    requests = await side.engine.submitted(3)
    for request in requests:
        deliver(request, copy(request))
    answers = [translation.reuse for call in calls for translation in await call]
    assert answers == [Reuse.NONE, Reuse.NONE, Reuse.NONE, Reuse.SHARED]
    again = side.translate(TEXT, no_cache=True)
    [*_, request] = await side.engine.submitted(4)
    deliver(request, copy(request))
    assert [one.reuse for one in await again] == [Reuse.NONE]
    assert side.sample("dragoman_answer_cache_hits_total") == 0
    assert side.sample("dragoman_answer_cache_misses_total") == 1


async def test_no_cache_leaves_no_answer(side: Side) -> None:
    call = side.translate(TEXT, no_cache=True)
    [request] = await side.engine.submitted(1)
    deliver(request, copy(request))
    await call
    assert side.sample("dragoman_answer_cache_bytes") == 0


async def test_other_options_are_another_question(side: Side) -> None:
    calls = [side.translate(TEXT, options={"num_beams": beams}) for beams in (1, 2, 3)]
    calls.append(side.translate(TEXT, options={"num_beams": 2, "num_return_sequences": 2}))
    requests = await side.engine.submitted(4)
    assert [request.rows for request in requests] == [1, 2, 3, 2]
    for request in requests:
        deliver(request, copy(request))
    await asyncio.gather(*calls)
    assert side.shared == 0


async def test_what_was_chosen_is_equal_to_the_default_that_it_is(side: Side) -> None:
    calls = [side.translate(TEXT), side.translate(TEXT, options={"num_beams": MODEL.defaults.num_beams})]
    await side.idle()
    [request] = await side.engine.submitted(1)
    deliver(request, copy(request))
    assert [[one.reuse for one in await call] for call in calls] == [[Reuse.NONE], [Reuse.SHARED]]


async def test_a_stream_that_comes_late_is_told_all_that_was_said(side: Side) -> None:
    first = side.stream()
    [request] = await side.engine.submitted(1)
    ids = request.source_ids
    deliver(request, Tokens(ids[:2]))
    await side.idle()
    second, unary = side.stream(), side.translate(TEXT)
    await eventually(lambda: side.shared == 2)
    deliver(request, Tokens(ids[2:3]), Tokens(ids[3:5]), copy(request))
    one, two, [three] = await first, await second, await unary
    assert "".join(delta.text for delta in one[:-1] if isinstance(delta, TextDelta)) == TEXT
    assert "".join(delta.text for delta in two[:-1] if isinstance(delta, TextDelta)) == TEXT
    assert len(two) == len(one)
    assert text_of(one[-1]) == text_of(two[-1]) == text_of(three) == TEXT
    assert three.reuse is Reuse.SHARED


async def test_a_stream_that_is_behind_is_told_several_tokens_at_once(side: Side) -> None:
    events = side.translator.stream(TEXT, ROUTE, OPTIONS)
    first = asyncio.ensure_future(anext(events))
    [request] = await side.engine.submitted(1)
    ids = request.source_ids
    deliver(request, Tokens(ids[:1]), Tokens(ids[1:2]))
    said = [await first]
    await side.idle()
    deliver(request, *[Tokens((token,)) for token in ids[2:]], copy(request))
    await side.idle()
    said += [event async for event in events]
    assert "".join(delta.text for delta in said[:-1] if isinstance(delta, TextDelta)) == TEXT == text_of(said[-1])
    assert len(said) == 3


async def test_a_stream_does_not_wait_for_what_is_not_streamed(side: Side) -> None:
    unary = side.translate(TEXT)
    await side.engine.submitted(1)
    stream = side.stream()
    requests = await side.engine.submitted(2)
    assert [request.stream for request in requests if isinstance(request, Translate)] == [False, True]
    for request in requests:
        deliver(request, copy(request))
    assert [one.reuse for one in await unary] == [Reuse.NONE]
    assert text_of((await stream)[-1]) == TEXT


@pytest.mark.parametrize("leaver", [0, 1])
async def test_one_who_leaves_takes_the_answer_from_nobody(side: Side, leaver: int) -> None:
    calls = [side.translate(TEXT), side.translate(TEXT)]
    await side.idle()
    [request] = await side.engine.submitted(1)
    gone = calls.pop(leaver)
    gone.cancel()
    await side.idle()
    assert gone.cancelled() and not request.cancelled
    deliver(request, copy(request))
    assert text_of((await calls[0])[0]) == TEXT


async def test_the_row_goes_with_the_last_one(side: Side) -> None:
    calls = [side.translate(TEXT), side.translate(TEXT), side.stream()]
    await side.idle()
    unary, streamed = await side.engine.submitted(2)
    calls[0].cancel()
    calls[2].cancel()
    await side.idle()
    assert (unary.cancelled, streamed.cancelled) == (False, True)
    calls[1].cancel()
    await side.idle()
    assert unary.cancelled


async def test_who_comes_after_the_last_one_left_starts_anew(side: Side) -> None:
    """And what the cancelled request says after all is not taken for the new one's."""
    left = side.translate(TEXT)
    [old] = await side.engine.submitted(1)
    left.cancel()
    await side.idle()
    call = side.translate(TEXT)
    _, new = await side.engine.submitted(2)
    deliver(old, copy(old))
    await side.idle()
    shared = side.translate(TEXT)
    await eventually(lambda: side.shared == 1)
    assert len(side.engine.requests) == 2
    deliver(new, copy(new))
    assert [one.reuse for one in (*await call, *await shared)] == [Reuse.NONE, Reuse.SHARED]


async def test_a_failure_is_everybodys_and_is_not_kept(side: Side) -> None:
    calls = [side.translate(TEXT), side.translate(TEXT)]
    await side.idle()
    [request] = await side.engine.submitted(1)
    deliver(request, Failed(OutOfMemory(9)))
    for call in calls:
        with pytest.raises(errors.OutOfMemory):
            await call
    again = side.translate(TEXT)
    _, request = await side.engine.submitted(2)
    deliver(request, copy(request))
    assert [one.reuse for one in await again] == [Reuse.NONE]


async def test_without_a_cache_only_what_is_under_way_is_shared() -> None:
    side = Side(cache_bytes=0)
    calls = [side.translate(TEXT), side.translate(TEXT)]
    await side.idle()
    [request] = await side.engine.submitted(1)
    deliver(request, copy(request))
    assert [one.reuse for call in calls for one in await call] == [Reuse.NONE, Reuse.SHARED]
    again = side.translate(TEXT)
    _, request = await side.engine.submitted(2)
    deliver(request, copy(request))
    await again


async def test_vectors_are_no_translations(side: Side) -> None:
    calls = [asyncio.create_task(side.translator.encode([TEXT, TEXT], EncodingOptions())), side.translate(TEXT)]
    requests = await side.engine.submitted(3)
    for call in calls:
        call.cancel()
    await side.idle()
    assert all(request.cancelled for request in requests)


async def test_a_stream_that_is_closed_early_leaves(side: Side) -> None:
    events = side.translator.stream(TEXT, ROUTE, OPTIONS)

    async def first(events: AsyncIterator[TextDelta | Translation]) -> None:
        async for _ in events:
            return

    async with aclosing(events):
        reading = asyncio.create_task(first(events))
        [request] = await side.engine.submitted(1)
        deliver(request, Tokens(request.source_ids[:3]))
        await reading
        assert not request.cancelled
    assert request.cancelled
