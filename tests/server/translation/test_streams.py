"""server.translation.translator, text as it is decoded: against a list of requests instead of an engine."""

import asyncio
from contextlib import aclosing

import pytest

from engine.request import (
    Failed,
    Tokens,
    Translate,
)
from server.errors import (
    BlankContent,
    EngineFailed,
    InvalidRequest,
    SourceTooLong,
)
from server.translation.answer import TextDelta, Translation
from server.translation.translator import Translator
from tests.server.translation.engine import OPTIONS, ROUTE, Engine, copy, deliver


async def events_of(translator: Translator, content: str) -> list[TextDelta | Translation]:
    return [event async for event in translator.stream(content, ROUTE, OPTIONS)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_deltas_together_are_the_text_of_the_translation_that_ends_the_stream(
    translator: Translator, engine: Engine, size: int
) -> None:
    text = "A small café, naïve: “quoted” words — and rain."
    call = asyncio.create_task(events_of(translator, text))
    [request] = await engine.submitted(1)
    ids = request.source_ids
    parts = [Tokens(ids[start : start + size]) for start in range(0, len(ids), size)]
    deliver(request, *parts, copy(request))
    *deltas, last = await call
    assert isinstance(last, Translation)
    assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.hypotheses[0].text
    assert last.source_tokens == len(ids)
    assert request.cancelled  # the stream was left; it costs nothing


async def test_a_stream_tells_tokens_as_they_come(translator: Translator, engine: Engine) -> None:
    async with aclosing(translator.stream("Two dogs bark.", ROUTE, OPTIONS)) as stream:
        first = asyncio.ensure_future(anext(stream))
        [request] = await engine.submitted(1)
        assert isinstance(request, Translate)
        assert request.stream
        deliver(request, Tokens(request.source_ids[:1]))
        assert await first == TextDelta("Two")
    assert request.cancelled


async def test_a_stream_without_settled_tokens_is_one_delta(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(events_of(translator, "Two dogs bark."))
    [request] = await engine.submitted(1)
    deliver(request, copy(request))
    delta, _ = await call
    assert delta == TextDelta("Two dogs bark.")


async def test_a_stream_that_fails_raises(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(events_of(translator, "Two dogs bark."))
    [request] = await engine.submitted(1)
    deliver(request, Tokens(request.source_ids[:1]), Failed(ValueError()))
    with pytest.raises(EngineFailed):
        await call
    assert request.cancelled


@pytest.mark.parametrize(("content", "error"), [("", BlankContent), ("cat " * 200, SourceTooLong)])
async def test_the_content_of_a_stream_is_checked_under_its_own_name(
    translator: Translator, engine: Engine, content: str, error: type[InvalidRequest]
) -> None:
    with pytest.raises(error) as caught:
        await events_of(translator, content)
    assert caught.value.field == "content"
    assert engine.requests == []
