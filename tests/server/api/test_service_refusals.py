"""server.grpc refuses bad input and overload by name, and whoever calls beside is not touched."""

import asyncio
import math
from collections.abc import Awaitable
from functools import partial
from typing import Any

import grpc
import pytest

from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.encoding_pb2 import EncodeRequest, StreamEncodeRequest
from dragoman.v1.translation_pb2 import (
    SEGMENTATION_SENTENCES,
    TEXT_FORMAT_HTML,
    GlossaryTerm,
    StreamTranslateRequest,
    TranslateRequest,
)
from server.admission.permits import FIRST_RETRY_S
from server.admission.shedding import Shedding
from server.errors.retry import JITTER
from tests.serving import (
    STREAM,
    TRANSLATE,
    eventually,
    held,
    refused,
    serving,
    stream_request,
    texts,
    tokenizer,
    translate_request,
)


def options(**values: object) -> TranslateRequest:
    return translate_request("A cat.", decoding=DecodingOptions(**values))  # type: ignore[arg-type]


INVALID = grpc.StatusCode.INVALID_ARGUMENT
BAD: dict[str, tuple[TranslateRequest, str, str, dict[str, str]]] = {
    "no contents": (translate_request(), "EMPTY_CONTENTS", "contents", {"contents": "0", "min_contents": "1"}),
    "empty string": (translate_request("A cat.", ""), "BLANK_CONTENT", "contents[1]", {"characters": "0"}),
    "only spaces": (translate_request(" \n\t"), "BLANK_CONTENT", "contents[0]", {"characters": "3"}),
    "too many contents": (
        translate_request(*["A cat."] * 9),
        "TOO_MANY_CONTENTS",
        "contents",
        {"contents": "9", "max_contents": "8"},
    ),
    "too many tokens": (
        translate_request("cat " * 200),
        "SOURCE_TOO_LONG",
        "contents[0]",
        {"tokens": "201", "max_tokens": "128"},
    ),
    "too many characters": (
        translate_request("A cat.", "cat " * 15_000),
        "SOURCE_TOO_LONG",
        "contents[1]",
        {"characters": "60000", "max_characters": str(128 * tokenizer().longest_piece)},
    ),
    "unknown format": (
        translate_request("A cat.", format=7),
        "OPTION_OUT_OF_RANGE",
        "format",
        {"value": "7", "min": "0", "max": "2"},
    ),
    "a glossary that is too long": (
        translate_request("A cat.", glossary=[GlossaryTerm(source="a")] * 1001),
        "OPTION_OUT_OF_RANGE",
        "glossary",
        {"value": "1001", "min": "0", "max": "1000"},
    ),
    "a blank term": (
        translate_request("A cat.", glossary=[GlossaryTerm(source="a"), GlossaryTerm(source=" ")]),
        "BLANK_CONTENT",
        "glossary[1].source",
        {"characters": "1"},
    ),
    "a term with two translations": (
        translate_request(
            "A cat.", glossary=[GlossaryTerm(source="cat", target="gato"), GlossaryTerm(source="Cat", target="gata")]
        ),
        "OPTIONS_CONFLICT",
        "glossary[1].target",
        {
            "option": "glossary[1].target",
            "value": '"gata"',
            "other": "glossary[0].target",
            "other_value": '"gato"',
        },
    ),
    "a blank text": (
        translate_request("A cat.", "\n", format=TEXT_FORMAT_HTML),
        "BLANK_CONTENT",
        "contents[1]",
        {"characters": "1"},
    ),
    "tokens of several sentences": (
        translate_request("A cat.", segmentation=SEGMENTATION_SENTENCES, decoding=DecodingOptions(with_tokens=True)),
        "OPTIONS_CONFLICT",
        "decoding.with_tokens",
        {"option": "with_tokens", "value": "set", "other": "the content", "other_value": "a text of sentences"},
    ),
    "unknown source language": (
        TranslateRequest(contents=["A cat."], source_language_code="fr", target_language_code="pt"),
        "LANGUAGE_NOT_SUPPORTED",
        "source_language_code",
        {"language_code": "fr", "supported": "en"},
    ),
    "unknown target language": (
        TranslateRequest(contents=["A cat."], target_language_code="de"),
        "LANGUAGE_NOT_SUPPORTED",
        "target_language_code",
        {"language_code": "de", "supported": "pt, pt-BR"},
    ),
    "no beams": (
        options(num_beams=0),
        "OPTION_OUT_OF_RANGE",
        "decoding.num_beams",
        {"value": "0", "min": "1", "max": "4"},
    ),
    "a million beams": (
        options(num_beams=10**6),
        "OPTION_OUT_OF_RANGE",
        "decoding.num_beams",
        {"value": "1000000", "min": "1", "max": "4"},
    ),
    "more sequences than beams": (
        options(num_beams=2, num_return_sequences=3),
        "OPTION_OUT_OF_RANGE",
        "decoding.num_return_sequences",
        {"value": "3", "min": "1", "max": "2"},
    ),
    "no new tokens": (
        options(max_new_tokens=0),
        "OPTION_OUT_OF_RANGE",
        "decoding.max_new_tokens",
        {"value": "0", "min": "1", "max": "128"},
    ),
    "NaN": (
        options(length_penalty=math.nan),
        "OPTION_OUT_OF_RANGE",
        "decoding.length_penalty",
        {"value": "nan", "min": "-10.0", "max": "10.0"},
    ),
    "infinity": (
        options(length_penalty=math.inf),
        "OPTION_OUT_OF_RANGE",
        "decoding.length_penalty",
        {"value": "inf", "min": "-10.0", "max": "10.0"},
    ),
    "too many labels": (
        TranslateRequest(contents=["A cat."], labels={str(number): "x" for number in range(17)}),
        "TOO_MANY_LABELS",
        "labels",
        {"labels": "17", "max_labels": "16"},
    ),
    "a label too long": (
        TranslateRequest(contents=["A cat."], labels={"tenant": "x" * 129}),
        "LABEL_TOO_LONG",
        "labels",
        {"characters": "129", "max_characters": "128"},
    ),
    "a key of a label too long": (
        TranslateRequest(contents=["A cat."], labels={"x" * 129: ""}),
        "LABEL_TOO_LONG",
        "labels",
        {"characters": "129", "max_characters": "128"},
    ),
    "early_stopping of a later API": (
        options(early_stopping=99),
        "OPTION_OUT_OF_RANGE",
        "decoding.early_stopping",
        {"value": "99", "min": "0", "max": "3"},
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_refused_with_reason_field_and_numbers_and_nobody_else_is_touched(case: str) -> None:
    request, reason, field, numbers = BAD[case]
    async with serving() as server:
        server.decoder.gate.close()
        other = asyncio.ensure_future(texts(server, "Two dogs bark.", "Rain."))
        await held(server)
        told = await refused(server.translations.Translate(request))
        assert (told.code, told.info.reason, told.info.domain) == (INVALID, reason, "dragoman")
        assert told.fields == [field]
        assert dict(told.info.metadata) == numbers
        assert all(number in told.message for number in numbers.values())
        server.decoder.gate.open()
        assert await other == ["Two dogs bark.", "Rain."]
        assert server.metric("dragoman_rpc_requests_total", method=TRANSLATE, code="INVALID_ARGUMENT") == 1
        assert server.metric("dragoman_refusals_total", reason=reason) == 1
        assert server.metric("dragoman_rpc_requests_total", method=TRANSLATE, code="OK") == 1


async def test_an_unknown_model_is_not_found_everywhere() -> None:
    async with serving() as server:
        calls: list[Awaitable[object]] = [
            server.translations.Translate(TranslateRequest(contents=["A cat."], model="x", target_language_code="pt")),
            server.translations.StreamTranslate(StreamTranslateRequest(content="A cat.", model="x")).read(),
            server.encodings.Encode(EncodeRequest(contents=["A cat."], model="x")),
        ]
        for call in calls:
            told = await refused(call)
            assert (told.code, told.info.reason) == (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")
            assert dict(told.info.metadata) == {"model": "x", "available": "copy"}


async def test_a_stream_is_refused_like_a_call() -> None:
    async with serving() as server:
        told = await refused(server.translations.StreamTranslate(stream_request(" ")).read())
        assert (told.code, told.info.reason, told.fields) == (INVALID, "BLANK_CONTENT", ["content"])
        assert server.metric("dragoman_rpc_requests_total", method=STREAM, code="INVALID_ARGUMENT") == 1


async def test_encode_is_refused_like_translate() -> None:
    async with serving() as server:
        told = await refused(server.encodings.Encode(EncodeRequest(contents=["A cat.", " "])))
        assert (told.code, told.info.reason, told.fields) == (INVALID, "BLANK_CONTENT", ["contents[1]"])


@pytest.mark.parametrize(
    "data",
    [b"\x0a\x02\xff\xfe", b"\x0a\x02\xc3\x28", b"\xff\xff\xff", b"\x0a\x7fshort"],
    ids=["invalid UTF-8", "broken UTF-8", "no message", "cut short"],
)
@pytest.mark.parametrize("method", [TRANSLATE, STREAM, "dragoman.v1.EncodingService/Encode"])
async def test_bytes_that_are_no_message_are_refused(method: str, data: bytes) -> None:
    async with serving() as server:
        channel: Any = server.channel  # whose types know no calls with bytes
        raw = (
            channel.unary_stream(f"/{method}")(data).read()
            if method == STREAM
            else channel.unary_unary(f"/{method}")(data)
        )
        told = await refused(raw)
        assert (told.code, told.info.reason) == (INVALID, "INVALID_MESSAGE")
        assert dict(told.info.metadata) == {"method": method, "size_bytes": str(len(data))}
        assert await texts(server, "A cat.") == ["A cat."]


async def test_a_message_over_the_limit_is_refused_with_both_sizes() -> None:
    async with serving(max_message_bytes=1024) as server:
        request = translate_request("A cat.")
        for number in range(7):
            request.labels[f"padding {number}"] = "x" * 120
        request.labels["padding"] = "x"
        request.labels["padding"] += "x" * (1024 - request.ByteSize())
        assert request.ByteSize() == 1024
        await server.translations.Translate(request)
        request.labels["padding"] += "x"
        told = await refused(server.translations.Translate(request))
        assert (told.code, told.info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        assert dict(told.info.metadata) == {"size_bytes": "1025", "max_message_bytes": "1024"}


async def test_a_message_far_over_the_limit_is_refused_by_grpc_before_it_is_read() -> None:
    async with serving(max_message_bytes=1024) as server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.translations.Translate(translate_request("x" * 20_000))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await texts(server, "A cat.") == ["A cat."]


async def test_overload_is_refused_with_a_delay_and_what_runs_and_waits_is_answered() -> None:
    async with serving(max_rows=1, max_waiting=2, max_contents=2) as server:
        server.decoder.gate.close()
        runs = asyncio.ensure_future(texts(server, "A cat."))
        await held(server)
        waits = asyncio.ensure_future(texts(server, "Two dogs bark.", "Rain."))
        await eventually(lambda: server.runner.waiting == 2)
        told = await refused(server.translations.Translate(translate_request("Me too.")))
        assert (told.code, told.info.reason) == (grpc.StatusCode.UNAVAILABLE, "OVERLOADED")
        assert dict(told.info.metadata) == {"waiting": "3", "max_waiting": "2"}
        assert told.retry_delay_s is not None and FIRST_RETRY_S <= told.retry_delay_s <= FIRST_RETRY_S * (1 + JITTER)
        assert told.pushback_ms == str(round(told.retry_delay_s * 1000))
        server.decoder.gate.open()
        assert await runs == ["A cat."]
        assert await waits == ["Two dogs bark.", "Rain."]
        assert server.metric("dragoman_refusals_total", reason="OVERLOADED") == 1


async def test_a_caller_who_fills_the_queue_leaves_places_to_others() -> None:
    async with serving(max_rows=1, max_waiting=16, max_contents=8, caller_key="x-tenant") as server:
        server.decoder.gate.close()
        runs = asyncio.ensure_future(texts(server, "A cat."))
        await held(server)
        greedy, modest = ((("x-tenant", name),) for name in ("greedy", "modest"))
        calls = [translate_request(*(f"Cat {number}." for number in numbers)) for numbers in (range(7), range(7, 14))]
        fills = [server.translations.Translate(call, metadata=greedy) for call in calls]
        await eventually(lambda: server.runner.waiting == 14)
        told = await refused(server.translations.Translate(translate_request("One more."), metadata=greedy))
        assert told.info.reason == "OVERLOADED"
        assert dict(told.info.metadata) == {"waiting": "15", "max_waiting": "16", "share": "14"}
        waits = asyncio.ensure_future(server.translations.Translate(translate_request("Rain."), metadata=modest))
        await eventually(lambda: server.runner.waiting == 15)
        server.decoder.gate.open()
        assert (await waits).translations[0].hypotheses[0].text == "Rain."
        assert [len((await call).translations) for call in fills] == [7, 7]
        assert await runs == ["A cat."]


async def test_where_most_calls_of_a_caller_are_refused_they_are_before_they_are_read() -> None:
    shedding = Shedding(clock=lambda: 100.0, chance=lambda: 0.0)
    async with serving(max_rows=1, max_waiting=2, max_contents=2, caller_key="x-tenant", shedding=shedding) as server:
        server.decoder.gate.close()
        greedy, modest = ((("x-tenant", name),) for name in ("greedy", "modest"))
        runs = asyncio.ensure_future(texts(server, "A cat."))
        await held(server)
        waits = asyncio.ensure_future(texts(server, "Two dogs bark.", "Rain."))
        await eventually(lambda: server.runner.waiting == 2)

        async def reason(metadata: tuple[tuple[str, str], ...]) -> str:
            told = await refused(server.translations.Translate(translate_request("Me too."), metadata=metadata))
            assert told.code == grpc.StatusCode.UNAVAILABLE and told.retry_delay_s is not None
            return str(told.info.reason)

        assert [await reason(greedy) for _ in range(12)] == ["OVERLOADED"] * 10 + ["TOO_MANY_CALLS"] * 2
        assert await reason(modest) == "OVERLOADED"
        for path, many in (("TranslationService/Translate", True), ("ModelService/ListModels", False)):
            call: Any = server.channel.unary_unary(f"/dragoman.v1.{path}")
            told = await refused(call(b"no message", metadata=greedy))
            assert told.info.reason == ("TOO_MANY_CALLS" if many else "INVALID_MESSAGE"), path
        for _ in range(12):  # who writes when a call ends is told INTERNAL by gRPC itself
            stream = server.encodings.StreamEncode(metadata=greedy)
            await stream.write(StreamEncodeRequest(request=EncodeRequest(contents=["Me too."])))
            assert (await refused(stream.read())).info.reason == "OVERLOADED"
        server.decoder.gate.open()
        assert (await runs, await waits) == (["A cat."], ["Two dogs bark.", "Rain."])
        assert server.metric("dragoman_refusals_total", reason="TOO_MANY_CALLS") == 3


async def test_unknown_methods_are_unimplemented_and_make_no_metric() -> None:
    async with serving() as server:
        channel: Any = server.channel
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/dragoman.v1.TranslationService/Made-up")(b"")
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert not [f for f in server.registry.collect() if any("Made-up" in str(s.labels) for s in f.samples)]


async def test_a_defect_of_the_server_is_internal_and_its_traceback_is_logged_not_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:

        def broken(ids: object) -> str:
            raise KeyError("secret")

        with monkeypatch.context() as patch:
            patch.setattr(tokenizer(), "decode", broken)
            told = await refused(server.translations.Translate(translate_request("A cat.")))
        assert (told.code, told.info.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
        assert "secret" not in told.message
        assert "KeyError: 'secret'" in caplog.text
        calls = partial(server.metric, "dragoman_rpc_requests_total", method=TRANSLATE, code="INTERNAL")
        await eventually(lambda: calls() == 1)  # counted when the answer is out
        assert await texts(server, "A cat.") == ["A cat."]
