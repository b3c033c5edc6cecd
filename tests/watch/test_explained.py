"""What a call is told of itself, and the log of it, over real gRPC: timings, names, traces."""

import asyncio
import json
import logging
import re
from typing import Any

import grpc
import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from dragoman.v1.decoding_pb2 import Timings
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.model_pb2 import ListModelsRequest
from engine.request import PHASES
from server.telemetry.logs import FIELDS, JsonFormatter
from tests.serving import (
    MODEL,
    STREAM,
    TRANSLATE,
    Serving,
    eventually,
    held,
    serving,
    stream_request,
    texts,
    translate_request,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED, UNSAMPLED = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-{flags}") for flags in ("01", "00"))
SECRET = "Nobody may read this"
ENTRY = re.compile(r'([a-z-]+);(?:dur=(\d+\.\d{3})|desc="(\d+(?:\.\d)?)")')


async def trailing(call: Any) -> dict[str, str]:
    return {key: value for key, value in await call.trailing_metadata() if isinstance(value, str)}


def server_timing(value: str) -> dict[str, float]:
    """Milliseconds or numbers, by name."""
    matches = [ENTRY.fullmatch(entry) for entry in value.split(", ")]
    return {match[1]: float(match[2] or match[3]) for match in matches if match is not None or pytest.fail(value)}


def milliseconds(timings: Timings) -> dict[str, float]:
    return {phase: getattr(timings, phase).ToNanoseconds() / 1e6 for phase in PHASES}


def records(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines about calls, as JSON has them."""
    written = [record for record in caplog.records if record.name == "server.telemetry.calls"]
    return [json.loads(JsonFormatter().format(record)) for record in written]


async def test_an_answer_tells_its_time_twice_alike() -> None:
    async with serving() as server:
        call = server.translations.Translate(translate_request("Two dogs bark."))
        [translation] = (await call).translations
        told = server_timing((await trailing(call))["server-timing"])
        phases = milliseconds(translation.timings)
        assert {name: told[name] for name in PHASES} == pytest.approx(phases, abs=0.0006)
        assert min(phases.values()) > 0
        assert sum(phases.values()) <= told["total"]
        assert told["steps"] == translation.timings.steps
        assert told["batch-rows"] == translation.timings.mean_batch_rows == 1


async def test_texts_that_share_their_steps_tell_how_many_rows_they_had() -> None:
    """They come to the engine one after the other: it is kept busy until all are there."""
    async with serving() as server:
        server.decoder.gate.close()
        before = asyncio.create_task(texts(server, "Rain."))
        await held(server)
        call = asyncio.ensure_future(server.translations.Translate(translate_request("A cat.", "A dog.", "A cow.")))
        await eventually(lambda: server.runner.waiting == 3)
        before.cancel()
        await eventually(lambda: server.calls.running == 1)
        server.decoder.gate.open()
        response = await call
        assert [translation.timings.mean_batch_rows for translation in response.translations] == [3, 3, 3]


async def test_a_stream_and_an_encoding_tell_their_time_too() -> None:
    async with serving() as server:
        stream = server.translations.StreamTranslate(stream_request("Two dogs bark."))
        last = [event async for event in stream][-1].translation
        told = server_timing((await trailing(stream))["server-timing"])
        assert told["decode"] == pytest.approx(milliseconds(last.timings)["decode"], abs=0.0006)
        call = server.encodings.Encode(EncodeRequest(contents=["A cat."]))
        timings = (await call).embeddings[0].timings
        assert (timings.steps, timings.mean_batch_rows) == (0, 0)
        assert timings.tokenize.ToNanoseconds() > 0
        told = server_timing((await trailing(call))["server-timing"])
        assert (told["decode"], told["detokenize"], told["steps"]) == (0, 0, 0)


async def test_a_call_without_contents_tells_only_its_total() -> None:
    async with serving() as server:
        call = server.models.ListModels(ListModelsRequest())
        await call
        assert list(server_timing((await trailing(call))["server-timing"])) == ["total"]


@pytest.mark.parametrize("contents", ["A cat.", " "], ids=["answered", "refused"])
async def test_a_call_keeps_its_name(contents: str) -> None:
    async with serving() as server:
        for asked, kept in (("order-17", True), ("or der", False), (None, False)):
            metadata = (("x-request-id", asked),) if asked else ()
            call = server.translations.Translate(translate_request(contents), metadata=metadata)
            try:
                await call
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            told = await trailing(call)
            assert (told["x-request-id"] == asked) == kept
            assert re.fullmatch("order-17|[0-9a-f]{32}", told["x-request-id"])
            assert "total" in server_timing(told["server-timing"])


# The log


async def test_a_call_is_one_line_with_its_name_trace_and_numbers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(log_requests=True) as server:
        metadata = (("x-request-id", "order-17"), UNSAMPLED)
        response = await server.translations.Translate(translate_request(SECRET, "A cat."), metadata=metadata)
        await eventually(lambda: server.calls.running == 0)
    [line] = records(caplog)
    assert (line["request_id"], line["trace_id"], line["method"]) == ("order-17", TRACE, TRANSLATE)
    assert (line["code"], line["model"], line["contents"]) == ("OK", MODEL.name, 2)
    assert line["source_tokens"] == sum(translation.source_tokens for translation in response.translations)
    assert line["target_tokens"] == sum(translation.hypotheses[0].tokens for translation in response.translations)
    assert line["steps"] == max(translation.timings.steps for translation in response.translations)
    assert all(line[f"{phase}_ms"] > 0 for phase in PHASES)
    assert line["duration_ms"] > line["decode_ms"]
    assert "Nobody" not in caplog.text


async def test_a_refused_call_and_a_stream_are_lines_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(log_requests=True) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translations.Translate(translate_request(SECRET, " "))
        async for _ in server.translations.StreamTranslate(stream_request(SECRET)):
            pass
        await eventually(lambda: server.calls.running == 0)
    refused, streamed = records(caplog)
    assert (refused["code"], refused["reason"]) == ("INVALID_ARGUMENT", "BLANK_CONTENT")
    assert not {"trace_id", "contents", "steps"} & refused.keys()
    assert (streamed["method"], streamed["code"]) == (STREAM, "OK")
    assert "reason" not in streamed
    assert "Nobody" not in caplog.text


async def test_texts_are_logged_only_where_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(log_requests=True, log_text=True) as server:
        await server.translations.Translate(translate_request(SECRET))
        await server.encodings.Encode(EncodeRequest(contents=["A cat."]))
        await eventually(lambda: server.calls.running == 0)
    translated, encoded = records(caplog)
    assert (translated["texts"], translated["answers"]) == ([SECRET], [SECRET])
    assert (encoded["texts"], encoded["answers"]) == (["A cat."], [])


async def test_without_being_asked_no_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as server:
        await server.translations.Translate(translate_request(SECRET))
        await eventually(lambda: server.calls.running == 0)
    assert not [record for record in caplog.records if hasattr(record, FIELDS)]
    assert "Nobody" not in caplog.text


# Exemplars


def exemplars(server: Serving) -> list[tuple[str, str]]:
    """Family and trace of every exemplar."""
    families = text_string_to_metric_families(generate_latest(server.registry).decode())
    samples = [(family.name, sample) for family in families for sample in family.samples]
    return [(name, sample.exemplar.labels["trace_id"]) for name, sample in samples if sample.exemplar is not None]


async def test_a_sampled_trace_is_the_exemplar_of_all_that_is_timed() -> None:
    async with serving() as server:
        await server.translations.Translate(translate_request("A cat."), metadata=(SAMPLED,))
        await eventually(lambda: server.calls.running == 0)
        found = exemplars(server)
    assert {trace for _, trace in found} == {TRACE}
    names = [name for name, _ in found]
    assert names.count("dragoman_phase_duration_seconds") == len(PHASES)
    assert names.count("dragoman_time_to_first_token_seconds") == names.count("dragoman_rpc_duration_seconds") == 1


async def test_a_trace_that_nobody_records_is_none() -> None:
    async with serving() as server:
        await server.translations.Translate(translate_request("A cat."), metadata=(UNSAMPLED,))
        await server.translations.Translate(translate_request("A cat."))
        assert exemplars(server) == []


# Signs that a translation is wrong


async def test_a_copy_and_a_loop_are_counted() -> None:
    async with serving() as server:
        await server.translations.Translate(translate_request("Rain.", "Two dogs bark at a cat.", "cat " * 30))
        assert server.model_metric("dragoman_guard_flags_total", flag="copy") == 2
        assert server.model_metric("dragoman_guard_flags_total", flag="repetition") == 1
