"""server.api.service and server.grpc.rpc: real gRPC on loopback, over a decoder that copies its source."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import pytest

from dragoman.v1 import decoding_pb2, model_pb2, translation_pb2
from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.translation_pb2 import StreamTranslateResponse
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from engine.request import Request, Translate
from server.telemetry.logs import FIELDS
from tests.fakes import CopyDecoder
from tests.serving import (
    MODEL,
    SMALL_WINDOW,
    STREAM,
    TRANSLATE,
    Serving,
    eventually,
    eventually_not_serving,
    held,
    refusal,
    refused,
    serving,
    stream_request,
    texts,
    translate_request,
)

if TYPE_CHECKING:
    from dragoman.v1.translation_pb2_grpc import TranslationServiceAsyncStub

LONG = " ".join(["house river mountain window"] * 30)
"""121 tokens."""


def live_rows(server: Serving) -> float:
    return server.model_metric("dragoman_rows_live", worker="0")


# What is answered


async def test_a_prompt_is_put_before_the_text_and_counts() -> None:
    async with serving() as server:
        request = translate_request("A cat.")
        request.prompt = "shorten"
        stream = stream_request("A cat.")
        stream.prompt = "shorten"
        [translation] = (await server.translations.Translate(request)).translations
        *_, last = [event async for event in server.translations.StreamTranslate(stream)]
        for answer in (translation, last.translation):
            assert answer.hypotheses[0].text == "shorten: A cat."
            assert answer.source_tokens == answer.hypotheses[0].tokens
        request.prompt = ""
        [translation] = (await server.translations.Translate(request)).translations
        assert translation.hypotheses[0].text == "A cat."
        fits = translate_request(" ".join(["cat"] * 126))
        assert len((await server.translations.Translate(fits)).translations) == 1
        fits.prompt = "shorten"
        told = await refused(server.translations.Translate(fits))
        assert (told.info.reason, told.fields) == ("SOURCE_TOO_LONG", ["contents[0]"])
        assert int(told.info.metadata["tokens"]) > 128 == int(told.info.metadata["max_tokens"])


async def test_a_prompt_that_the_model_has_not_is_refused() -> None:
    async with serving() as server:
        request = translate_request("A cat.")
        request.prompt = "lengthen"
        told = await refused(server.translations.Translate(request))
        assert (told.info.reason, told.fields) == ("PROMPT_NOT_SUPPORTED", ["prompt"])
        assert dict(told.info.metadata) == {"prompt": "lengthen", "supported": "shorten"}


async def test_translations_are_in_order_and_complete() -> None:
    async with serving() as server:
        response = await server.translations.Translate(translate_request("A cat.", "Two dogs bark.", "Rain."))
        assert response.model == "copy"
        assert [t.hypotheses[0].text for t in response.translations] == ["A cat.", "Two dogs bark.", "Rain."]
        for translation in response.translations:
            [best] = translation.hypotheses
            assert best.tokens == translation.source_tokens == translation.timings.steps
            assert best.finish_reason == decoding_pb2.FINISH_REASON_END_TOKEN
            assert best.score == pytest.approx(-0.125)
            parts = [translation.timings.queue, translation.timings.encode, translation.timings.decode]
            total = translation.timings.total.ToNanoseconds()
            assert 0 < sum(part.ToNanoseconds() for part in parts) == pytest.approx(total, abs=3)


async def test_beam_search_gives_as_many_hypotheses_as_wanted_best_first() -> None:
    async with serving() as server:
        options = DecodingOptions(num_beams=4, num_return_sequences=3)
        response = await server.translations.Translate(translate_request("Two dogs bark.", decoding=options))
        hypotheses = response.translations[0].hypotheses
        assert len(hypotheses) == 3
        assert hypotheses[0].text == "Two dogs bark."
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


async def test_an_answer_says_whether_it_was_kept_or_shared(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(log_requests=True) as server:
        request, anew = translate_request("A cat.", "A cat."), translate_request("A cat.")
        anew.no_cache = True
        calls = [await server.translations.Translate(call) for call in (request, request, anew)]
        *_, streamed = [event async for event in server.translations.StreamTranslate(stream_request("A cat."))]
        kept, shared = translation_pb2.REUSE_CACHED, translation_pb2.REUSE_SHARED
        own = translation_pb2.REUSE_UNSPECIFIED
        assert [[one.reuse for one in call.translations] for call in calls] == [[own, shared], [kept, kept], [own]]
        assert streamed.translation.reuse == kept
        assert {one.hypotheses[0].text for call in calls for one in call.translations} == {"A cat."}
        assert calls[1].translations[0].timings.steps == calls[1].translations[0].timings.total.ToNanoseconds() == 0
    lines = [getattr(line, FIELDS) for line in caplog.records if line.message == "call answered"]
    assert [(line.get("shared"), line.get("cached")) for line in lines] == [
        (1, None),
        (None, 2),
        (None, None),
        (None, 1),
    ]


async def test_a_translation_cut_at_max_new_tokens_says_so() -> None:
    async with serving() as server:
        request = translate_request("Two dogs bark in the rain.", decoding=DecodingOptions(max_new_tokens=3))
        [translation] = (await server.translations.Translate(request)).translations
        assert translation.hypotheses[0].finish_reason == decoding_pb2.FINISH_REASON_LENGTH
        assert translation.hypotheses[0].tokens == 3


@pytest.mark.parametrize("penalty", [0.6, 1.1, -3.3, 1e-3])
async def test_the_length_penalty_is_the_number_the_caller_wrote(
    penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as server:
        seen: list[Request] = []

        def submit(request: Request) -> None:
            seen.append(request)
            server.runner.submit(request)

        monkeypatch.setattr(server.translator._work, "_submit", submit)
        await texts(server, "A cat.", decoding=DecodingOptions(length_penalty=penalty))
        assert [request.decoding.length_penalty for request in seen if isinstance(request, Translate)] == [penalty]


async def test_a_stream_is_deltas_and_then_the_translation() -> None:
    async with serving() as server:
        server.decoder.gate.let(3)  # else all of it may be there before the first word is sent
        stream = aiter(server.translations.StreamTranslate(stream_request("Two dogs bark.")))
        first = await anext(stream)
        server.decoder.gate.open()
        *deltas, last = [first, *[event async for event in stream]]
        assert [delta.WhichOneof("event") for delta in deltas] == ["text_delta"] * len(deltas)
        assert len(deltas) > 1
        assert "".join(delta.text_delta for delta in deltas) == last.translation.hypotheses[0].text == "Two dogs bark."
        assert last.translation.timings.steps == last.translation.source_tokens


async def test_models_are_listed_and_found_with_every_field() -> None:
    async with serving() as server:
        [listed] = (await server.models.ListModels(model_pb2.ListModelsRequest())).models
        for name in ("", "copy"):
            assert (await server.models.GetModel(model_pb2.GetModelRequest(name=name))).model == listed
        zero = {"encoder_layers", "prompt", "aligns", "attends", "labels", "labels_tokens", "labels_pairs"}
        assert {field.name for field, _ in listed.ListFields()} | zero == {f.name for f in listed.DESCRIPTOR.fields}
        assert listed.name == MODEL.name
        assert list(listed.target_language_codes) == ["pt", "pt-BR"]
        assert (listed.max_source_tokens, listed.max_new_tokens, listed.max_beams) == (128, 128, 4)
        assert listed.default_decoding == DecodingOptions(
            num_beams=1,
            num_return_sequences=1,
            max_new_tokens=128,
            length_penalty=1.0,
            early_stopping=decoding_pb2.EARLY_STOPPING_HEURISTIC,
            patience=1,
            coverage_penalty=0,
            max_new_tokens_ratio=0,
            min_new_tokens=0,
            exponential_decay_length_penalty=1,
            exponential_decay_start=0,
            return_alternatives=False,
            min_alternative_expansion_prob=0.0,
            num_beam_groups=1,
            diversity_penalty=0,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            encoder_repetition_penalty=1.0,
            encoder_no_repeat_ngram_size=0,
            prefix_bias_beta=0,
            disable_unknown=False,
            do_sample=False,
            temperature=1,
            top_k=50,
            top_p=1,
            min_p=0,
            top_h=0,
            typical_p=1,
            epsilon_cutoff=0,
            eta_cutoff=0,
            seed=0,
            mbr_samples=0,
            with_tokens=False,
            with_alignment=False,
            with_attention=False,
            retry_on_guard=False,
        )
        missing = await refused(server.models.GetModel(model_pb2.GetModelRequest(name="other")))
        assert (missing.code, missing.fields) == (grpc.StatusCode.NOT_FOUND, ["name"])


# Clients that leave


async def test_a_cancelled_call_frees_its_rows_and_the_others_finish() -> None:
    async with serving() as server:
        server.decoder.gate.close()
        stays = asyncio.ensure_future(texts(server, "Two dogs bark."))
        await held(server)
        leaves = server.translations.Translate(translate_request("A cat.", "Rain."))
        await eventually(lambda: server.runner.waiting == 2)
        server.decoder.gate.let(1)
        await held(server)  # by now all three contents are in the batch
        leaves.cancel()
        await eventually(lambda: server.calls.running == 1)
        server.decoder.gate.open()
        assert await stays == ["Two dogs bark."]
        assert server.model_metric("dragoman_cancellations_total") == 2
        assert server.model_metric("dragoman_finished_total", reason="end_token") == 1
        await eventually(lambda: live_rows(server) == 0)
        assert server.metric("dragoman_rpc_requests_total", method=TRANSLATE, code="CANCELLED") == 1


async def test_a_passed_deadline_frees_the_rows() -> None:
    async with serving() as server:
        server.decoder.gate.close()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.translations.Translate(translate_request("A cat."), timeout=3.0)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: server.calls.running == 0)
        server.decoder.gate.open()
        await eventually(lambda: server.model_metric("dragoman_cancellations_total") == 1)
        await eventually(lambda: live_rows(server) == 0)
        assert server.metric("dragoman_rpc_requests_total", method=TRANSLATE, code="DEADLINE_EXCEEDED") == 1


async def test_a_client_that_vanishes_in_a_stream_frees_its_row() -> None:
    async with serving() as server, grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        server.decoder.gate.let(3)
        stub: TranslationServiceAsyncStub = TranslationServiceStub(channel)
        first = await stub.StreamTranslate(stream_request(LONG)).read()
        assert isinstance(first, StreamTranslateResponse)
        assert first.text_delta
        await held(server)
        await channel.close(None)
        await eventually(lambda: server.calls.running == 0)
        server.decoder.gate.open()
        await eventually(lambda: server.model_metric("dragoman_cancellations_total") == 1)
        await eventually(lambda: live_rows(server) == 0)
        assert server.metric("dragoman_rpc_requests_total", method=STREAM, code="CANCELLED") == 1


async def test_a_client_that_stops_reading_is_dropped_and_the_others_are_not() -> None:
    async with serving(stream_stall_timeout_s=2.0, channel_options=SMALL_WINDOW) as server:
        server.decoder.gate.let(5)
        stalled = server.translations.StreamTranslate(stream_request(LONG))
        await held(server)
        other = asyncio.ensure_future(texts(server, "Two dogs bark."))
        await eventually(lambda: server.metric("dragoman_refusals_total", reason="STREAM_STALLED") == 1)
        server.decoder.gate.open()
        assert await other == ["Two dogs bark."]
        await eventually(lambda: server.model_metric("dragoman_cancellations_total") == 1)
        await eventually(lambda: server.calls.running == 0)
        await eventually(lambda: live_rows(server) == 0)
        assert server.metric("dragoman_rpc_requests_total", method=STREAM, code="ABORTED") == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:  # and if it reads again, it is told
            async for _ in stalled:
                pass
        told = refusal(caught.value)
        assert (told.code, told.info.reason) == (grpc.StatusCode.ABORTED, "STREAM_STALLED")
        assert dict(told.info.metadata) == {"stream_stall_timeout_s": "2.0"}


async def test_a_slow_reader_gets_everything() -> None:
    async with serving(channel_options=SMALL_WINDOW) as server:
        call = server.translations.StreamTranslate(stream_request(LONG))
        await eventually(lambda: server.model_metric("dragoman_finished_total", reason="end_token") == 1)
        events = [event async for event in call]
        assert "".join(event.text_delta for event in events) == LONG == events[-1].translation.hypotheses[0].text


# Engines that fail


def break_step(decoder: CopyDecoder) -> None:
    decoder.step_error = RuntimeError("bad kernel")


def break_encoder(decoder: CopyDecoder) -> None:
    decoder.encode_error = RuntimeError("bad kernel")


@pytest.mark.parametrize("fail", [break_step, break_encoder])
async def test_a_crash_answers_every_live_request_and_flips_health(fail: Callable[[CopyDecoder], None]) -> None:
    async with serving(max_rows=2) as server:
        server.decoder.gate.close()
        first = asyncio.ensure_future(server.translations.Translate(translate_request("Two dogs bark.")))
        await held(server)
        crashing = asyncio.ensure_future(server.translations.Translate(translate_request("A cat.")))
        await eventually(lambda: server.runner.waiting == 1)
        waiting = asyncio.ensure_future(
            server.translations.Translate(translate_request("Rain.", decoding=DecodingOptions(num_beams=2)))
        )
        await eventually(lambda: server.runner.waiting == 2)
        fail(server.decoder)
        server.decoder.gate.open()
        answers = [await refused(call) for call in (first, crashing, waiting)]
        assert {(told.code.name, told.info.reason) for told in answers} <= {
            ("INTERNAL", "ENGINE_FAILED"),
            ("UNAVAILABLE", "ENGINE_STOPPED"),
        }
        assert "ENGINE_FAILED" in {told.info.reason for told in answers}
        for name in ("", "dragoman.v1.TranslationService", "dragoman.v1.EncodingService", "dragoman.v1.ModelService"):
            await eventually_not_serving(server, name)
        told = await refused(server.translations.Translate(translate_request("A cat.")))
        assert (told.code, told.info.reason) == (grpc.StatusCode.UNAVAILABLE, "ENGINE_STOPPED")
        assert (await server.models.GetModel(model_pb2.GetModelRequest())).model.name == "copy"
