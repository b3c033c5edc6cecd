"""TranslationService.TranslateDocument: let in, refused, ended and left as every other call."""

from typing import Any

import grpc
import pytest

from dragoman.v1.translation_pb2 import DOCUMENT_FORMAT_TXT, TranslateDocumentRequest, TranslateDocumentResponse
from server.admission.quotas import Quota
from server.errors import Draining
from tests.serving import Serving, eventually, held, refusal, serving, translate_request


def request(texts: int, **more: Any) -> TranslateDocumentRequest:
    document = "".join(f"A cat {number}.\n" for number in range(texts)).encode()
    asked = {"target_language_code": "pt", **more}
    return TranslateDocumentRequest(document=document, format=DOCUMENT_FORMAT_TXT, **asked)


async def answered(server: Serving, asked: TranslateDocumentRequest) -> list[TranslateDocumentResponse]:
    return [response async for response in server.translations.TranslateDocument(asked)]


async def test_a_document_longer_than_the_queue_waits_for_its_turns() -> None:
    async with serving(max_waiting=4, max_contents=4, max_rows=2) as server:
        asked = request(700, no_cache=True)
        *progress, last = await answered(server, asked)
        assert last.document.texts == 700 and last.document.document == asked.document
        assert [one.progress.total_texts for one in progress] == [700] * len(progress) and len(progress) > 2
        assert [one.progress.texts for one in progress] == sorted(one.progress.texts for one in progress)
        method = "dragoman.v1.TranslationService/TranslateDocument"
        assert server.metric("dragoman_rpc_requests_total", method=method, code="OK") == 1


async def test_whoever_leaves_frees_its_places() -> None:
    async with serving() as server:
        server.decoder.gate.close()
        call: Any = server.translations.TranslateDocument(request(8))
        assert (await call.read()).progress.total_texts == 8
        await held(server)
        await eventually(lambda: server.runner.waiting > 0)
        call.cancel()
        await eventually(lambda: server.runner.waiting == 0)
        server.decoder.gate.open()
        await eventually(lambda: server.calls.running == 0)
        assert (await server.translations.Translate(translate_request("A cat."))).translations


async def test_a_deadline_in_the_middle_frees_its_places() -> None:
    async with serving() as server:
        server.decoder.gate.close()
        call: Any = server.translations.TranslateDocument(request(8), timeout=0.5)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            while await call.read():
                pass
        assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: server.runner.waiting == 0)
        server.decoder.gate.open()
        await eventually(lambda: server.calls.running == 0 and server.runner.idle)
        assert server.model_metric("dragoman_finished_total", reason="end_token") == 0


async def test_a_document_costs_its_texts() -> None:
    """And with a deadline it does not wait for what its quota gives it too late."""
    async with serving(quota=Quota(texts_per_s=0.001)) as server:
        *_, last = await answered(server, request(8, no_cache=True))
        assert last.document.texts == 8
        assert server.metric("dragoman_caller_texts_total", caller="other") == 8
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await answered(server, request(1, no_cache=True))
        assert refusal(error.value).info.reason == "QUOTA_EXCEEDED"
    async with serving(quota=Quota(texts_per_s=0.001), max_contents=4) as server:
        call: Any = server.translations.TranslateDocument(request(8), timeout=600)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            while await call.read():
                pass
        told = refusal(error.value)
        assert told.info.reason == "QUOTA_EXCEEDED" and (told.retry_delay_s or 0) > 600
        await eventually(lambda: server.runner.idle)


async def test_a_server_that_ends_tells_so() -> None:
    async with serving() as server:
        server.admission.close(Draining)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await answered(server, request(2))
        assert (refusal(error.value).code, refusal(error.value).info.reason) == (
            grpc.StatusCode.UNAVAILABLE,
            "DRAINING",
        )


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (TranslateDocumentRequest(document=b"A cat."), "OPTION_OUT_OF_RANGE"),
        (TranslateDocumentRequest(format=DOCUMENT_FORMAT_TXT), "BLANK_CONTENT"),
        (TranslateDocumentRequest(document=b"\xff", format=DOCUMENT_FORMAT_TXT), "DOCUMENT_BROKEN"),
        (request(1, target_language_code="xx"), "LANGUAGE_NOT_SUPPORTED"),
    ],
)
async def test_what_is_refused(asked: TranslateDocumentRequest, reason: str) -> None:
    async with serving() as server:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await answered(server, asked)
        assert refusal(error.value).info.reason == reason
        assert server.runner.idle
