"""server.api.encoding and the clients: vectors over real gRPC, of a decoder whose hidden states are known."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dragoman.async_client import AsyncClient
from dragoman.v1 import encoding_pb2
from dragoman.v1.encoding_pb2 import EncodeRequest, StreamEncodeRequest, StreamEncodeResponse
from dragoman.v1.translation_pb2 import TranslateAndEncodeRequest, TranslateRequest
from models.encoding import Encoding, Numbers, Pooling
from models.encoding.dense import Dense, DenseSpec
from server.api.encoding import NUMBERS, POOLINGS, TRUNCATES
from tests.fakes import WAIT_S, CopySource
from tests.serving import MODEL, eventually, refusal, refused, serving, tokenizer

TEXT = "A cat."


def hidden(text: str) -> NDArray[np.float32]:
    return CopySource(tuple(tokenizer().encode(text))).hidden()


async def test_the_mean_is_the_default_and_has_its_shape() -> None:
    async with serving() as server:
        response = await server.encodings.Encode(EncodeRequest(contents=["Rain.", TEXT]))
        assert response.model == "copy"
        embedding = response.embeddings[1]
        assert embedding.values == pytest.approx(hidden(TEXT).mean(axis=0))
        assert embedding.source_tokens == len(hidden(TEXT))
        assert (list(embedding.shape), embedding.data, list(embedding.scales)) == ([4], b"", [])
        assert not embedding.truncated


async def test_poolings_dimensions_and_norm_are_as_asked() -> None:
    async with serving() as server:
        asked = [encoding_pb2.POOLING_MAX, encoding_pb2.POOLING_SUM_SQRT]
        request = EncodeRequest(contents=[TEXT], poolings=asked, dimensions=6, normalize=True)
        [embedding] = (await server.encodings.Encode(request)).embeddings
        expected = Encoding((Pooling.MAX, Pooling.SUM_SQRT), 6, True).of(hidden(TEXT))
        assert embedding.values == pytest.approx(expected.data)
        assert list(embedding.shape) == [6]


SCORES = DenseSpec(file="scores.npy", inputs=4, outputs=1, activation="identity")
ATTENTION = Dense(np.array([[0.5, -1.0, 0.25, 2.0, 0.1]], np.float32), "identity")
LEARNT = replace(MODEL, encoding=MODEL.encoding.model_copy(update={"scores": SCORES}), attention=ATTENTION)
"""With attention pooling."""


async def test_attention_pools_by_the_models_own_weights() -> None:
    async with serving(model=LEARNT) as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        text = "cat " * 200
        alone = await client.encode(TEXT, poolings=["attention"], dimensions=3, normalize=True)
        [among, cut] = await client.encode([TEXT, text], poolings=["attention"], dimensions=3, truncation="end")
        both = await client.encode(TEXT, poolings=["max", "attention"], type="float16")
        _, beside = await client.translate_and_encode(TEXT, target_language="pt", poolings=["attention"])
        states = torch.from_numpy(hidden(TEXT))
        table = torch.from_numpy(ATTENTION.table[0])
        expected = (states @ table[:-1] + table[-1]).softmax(0) @ states
        assert beside.values == pytest.approx(expected.tolist(), rel=1e-5)
        assert among.values == beside.values[:3]
        assert alone.values == pytest.approx(torch.nn.functional.normalize(expected[:3], dim=0).tolist(), rel=1e-5)
        assert both.values == pytest.approx([*states.amax(0).tolist(), *expected.tolist()], rel=1e-3)
        assert (cut.truncated, cut.source_tokens) == (True, 128)
        model = await client.model()
        assert model.default_encoding.offered == tuple(POOLINGS.values())


async def test_attention_without_weights_is_refused_with_what_there_is() -> None:
    async with serving() as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        offered = (await client.model()).default_encoding.offered
        assert offered == tuple(pooling for pooling in POOLINGS.values() if pooling is not Pooling.ATTENTION)
        asked = [encoding_pb2.POOLING_MEAN, encoding_pb2.POOLING_ATTENTION]
        told = await refused(server.encodings.Encode(EncodeRequest(contents=[TEXT], poolings=asked)))
        assert (told.info.reason, told.fields) == ("POOLING_NOT_SUPPORTED", ["poolings[1]"])
        assert dict(told.info.metadata) == {"pooling": "attention", "supported": ", ".join(offered)}
        assert "mean, max" in told.message


@pytest.mark.parametrize("poolings", [["none"], ["mean"], ["cls", "last"]])
@pytest.mark.parametrize("kind", list(Numbers))
async def test_the_client_gives_what_was_encoded(poolings: Any, kind: Any) -> None:
    async with serving() as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        found = await client.encode(TEXT, poolings=poolings, type=kind)
        plain = tuple(map(Pooling, poolings))
        expected = Encoding(plain, numbers=Numbers(kind)).of(hidden(TEXT))
        assert found.shape == expected.shape
        if kind == "float32":
            assert (found.data, found.scales) == (b"", ())
        else:
            assert found.data == expected.data.tobytes()
        if kind == "binary":
            assert found.values == ()
        else:
            exact, largest = Encoding(plain).of(hidden(TEXT)).data.ravel().tolist(), np.abs(hidden(TEXT)).max()
            tolerance = {"float32": 0.0, "float16": 5e-4, "int8": 1 / 253}[kind] * largest
            np.testing.assert_allclose(np.array(found.values), np.array(exact), atol=tolerance, rtol=0)


async def test_a_text_that_is_too_long_is_refused_or_cut() -> None:
    async with serving() as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        text = "cat " * 200
        told = await refused(server.encodings.Encode(EncodeRequest(contents=[TEXT, text])))
        assert (told.info.reason, told.fields) == ("SOURCE_TOO_LONG", ["contents[1]"])
        whole, cut = await client.encode([TEXT, text], truncation="end", poolings=["last"])
        assert (whole.truncated, cut.truncated) == (False, True)
        assert cut.source_tokens == 128
        assert cut.values == tuple(CopySource((*tokenizer().encode(text)[:127], 0)).hidden()[-1])


async def test_a_prompt_is_put_before_the_text() -> None:
    async with serving() as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        prompted = await client.encode(TEXT, prompt="query")
        assert prompted.values == (await client.encode("query: " + TEXT)).values
        assert (await client.encode(TEXT, prompt="")).values == (await client.encode(TEXT)).values
        told = await refused(server.encodings.Encode(EncodeRequest(contents=[TEXT], prompt="passage")))
        assert told.info.reason == "PROMPT_NOT_SUPPORTED"
        assert dict(told.info.metadata) == {"prompt": "passage", "supported": "query"}


async def test_vectors_that_no_message_has_room_for_are_not_computed() -> None:
    async with serving() as server:
        contents = ["cat " * 126] * 8
        request = EncodeRequest(contents=contents, poolings=[encoding_pb2.POOLING_NONE])
        fits = await server.encodings.Encode(request)
        assert len(fits.embeddings) == 8
    async with serving(max_message_bytes=8 * 127 * 4 * 4 - 1) as server:
        told = await refused(server.encodings.Encode(request))
        assert told.info.reason == "VECTORS_TOO_LARGE"
        assert dict(told.info.metadata) == {"size_bytes": "16256", "max_message_bytes": "16255"}
        assert server.model_metric("dragoman_source_tokens_total") == 0
        half = EncodeRequest(contents=contents, poolings=request.poolings, type=encoding_pb2.EMBEDDING_TYPE_FLOAT16)
        assert len((await server.encodings.Encode(half)).embeddings) == 8


async def test_vectors_that_are_not_finite_are_refused_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, plain = tuple(tokenizer().encode(TEXT)), CopySource.hidden

    def broken(source: CopySource) -> NDArray[np.float32]:
        return plain(source) * np.float32(np.nan if source.source_ids == ids else 1)

    async with serving() as server:
        monkeypatch.setattr(CopySource, "hidden", broken)
        told = await refused(server.encodings.Encode(EncodeRequest(contents=[TEXT])))
        assert told.info.reason == "NOT_FINITE"
        assert (await server.encodings.Encode(EncodeRequest(contents=["Rain."]))).embeddings[0].values


async def requests(*contents: str, then: asyncio.Event | None = None) -> AsyncIterator[StreamEncodeRequest]:
    """A request for each content. then: the stream stays open until it is set."""
    for content in contents:
        yield StreamEncodeRequest(request=EncodeRequest(contents=[content]))
    if then is not None:
        await then.wait()


async def test_a_stream_is_answered_in_order() -> None:
    texts = [f"{number} cats." for number in range(30)]
    async with serving() as server:
        responses = [response async for response in server.encodings.StreamEncode(requests(*texts))]
        assert [list(answer.response.embeddings[0].values) for answer in responses] == [
            hidden(text).mean(axis=0).tolist() for text in texts
        ]


async def test_a_stream_is_answered_while_it_is_sent() -> None:
    async with serving() as server, asyncio.timeout(WAIT_S):
        end = asyncio.Event()
        responses = server.encodings.StreamEncode(requests("A cat.", "Rain.", then=end)).__aiter__()
        assert [len((await anext(responses)).response.embeddings) for _ in range(2)] == [1, 1]
        end.set()
        assert [response async for response in responses] == []


async def test_what_is_refused_ends_a_stream_after_all_before_it() -> None:
    async with serving() as server:
        answered = []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for response in server.encodings.StreamEncode(requests("A cat.", "Rain.", " ", "Snow.")):
                answered.append(response)
        assert refusal(caught.value).info.reason == "BLANK_CONTENT"
        assert len(answered) == 2


async def test_large_requests_of_a_stream_wait_for_each_other_and_fill_no_queue() -> None:
    """Each brings as many texts as a call may have, and the engine has begun with none of them."""
    async with serving(max_contents=8, max_waiting=16) as server:
        server.decoder.gate.close()
        translating = asyncio.ensure_future(
            server.translations.Translate(TranslateRequest(contents=[TEXT], target_language_code="pt"))
        )
        await asyncio.to_thread(server.decoder.gate.wait_until_held)
        eight = StreamEncodeRequest(request=EncodeRequest(contents=[f"{TEXT} {index}" for index in range(8)]))
        stream = asyncio.ensure_future(_all(server.encodings.StreamEncode(iter([eight] * 5))))
        await eventually(lambda: server.model_metric("dragoman_requests_waiting") >= 8)
        server.decoder.gate.open()
        assert [len(response.response.embeddings) for response in await stream] == [8] * 5
        await translating


async def _all(responses: AsyncIterable[StreamEncodeResponse]) -> list[StreamEncodeResponse]:
    return [response async for response in responses]


async def test_a_stream_that_is_left_leaves_nothing_behind() -> None:
    async with serving() as server:
        call = server.encodings.StreamEncode(requests("A cat.", then=asyncio.Event()))
        await anext(call.__aiter__())
        call.cancel()
        await eventually(lambda: server.calls.running == 0)
        assert (await server.encodings.Encode(EncodeRequest(contents=["Rain."]))).embeddings


def test_every_name_of_the_api_has_a_meaning() -> None:
    assert POOLINGS.keys() == set(encoding_pb2.Pooling.values()) - {encoding_pb2.POOLING_UNSPECIFIED}
    assert set(POOLINGS.values()) == set(Pooling) - {Pooling.CONCAT}
    assert NUMBERS.keys() == set(encoding_pb2.EmbeddingType.values()) and set(NUMBERS.values()) == set(Numbers)
    assert TRUNCATES.keys() == set(encoding_pb2.Truncation.values())


async def test_a_stream_of_texts_gives_the_vectors_of_each() -> None:
    texts = [f"{number} cats." for number in range(50)]
    async with serving() as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        streamed = [vector async for vector in client.stream_encode(iter(texts), poolings=["last"])]
        encoded = await client.encode(texts, poolings=["last"])
        assert [vector.values for vector in streamed] == [vector.values for vector in encoded]


async def test_translations_come_with_the_vectors_of_the_same_encoder_run() -> None:
    texts = [TEXT, "Two dogs bark.", "Rain."]
    async with serving() as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        both = await client.translate_and_encode(
            texts, target_language="pt", num_beams=2, poolings=["max", "cls"], dimensions=5, normalize=True
        )
        tokens = server.model_metric("dragoman_source_tokens_total")
        assert tokens == sum(embedding.source_tokens for _, embedding in both)
        translated = await client.translate(texts, target_language="pt", num_beams=2)
        encoded = await client.encode(texts, poolings=["max", "cls"], dimensions=5, normalize=True)
        assert [translation.hypotheses for translation, _ in both] == [each.hypotheses for each in translated]
        assert [embedding.values for _, embedding in both] == [each.values for each in encoded]
        assert [embedding.source_tokens for _, embedding in both] == [each.source_tokens for each in encoded]
        assert all(embedding.timings.decode_s == 0 for _, embedding in both)
        assert all(translation.timings.steps > 0 for translation, _ in both)


async def test_a_prompt_is_that_of_both() -> None:
    async with serving() as server, AsyncClient(f"127.0.0.1:{server.port}") as client:
        translation, embedding = await client.translate_and_encode(TEXT, target_language="pt", prompt="shorten")
        assert translation.text == "shorten: " + TEXT
        assert embedding.values == (await client.encode("shorten: " + TEXT)).values


async def test_what_is_refused_of_either_is_refused_of_both() -> None:
    def request(**fields: Any) -> TranslateAndEncodeRequest:
        return TranslateAndEncodeRequest(contents=["A cat.", "cat " * 100], target_language_code="pt", **fields)

    async with serving(max_message_bytes=1024) as server:
        bad = {
            "PROMPT_NOT_SUPPORTED": request(prompt="query"),
            "POOLINGS_CONFLICT": request(poolings=[4, 4]),
            "OPTION_OUT_OF_RANGE": request(type=5),
            "LANGUAGE_NOT_SUPPORTED": TranslateAndEncodeRequest(contents=["A cat."]),
            "VECTORS_TOO_LARGE": request(poolings=[encoding_pb2.POOLING_NONE]),
        }
        for reason, asked in bad.items():
            told = await refused(server.translations.TranslateAndEncode(asked))
            assert told.info.reason == reason
        assert server.model_metric("dragoman_source_tokens_total") == 0


async def test_a_vector_that_is_not_finite_fails_its_call_alone_and_frees_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids, plain = tuple(tokenizer().encode(TEXT)), CopySource.hidden

    def broken(source: CopySource) -> NDArray[np.float32]:
        return plain(source) * np.float32(np.nan if source.source_ids == ids else 1)

    async with serving(max_rows=1) as server:
        monkeypatch.setattr(CopySource, "hidden", broken)
        for _ in range(2):
            request = TranslateAndEncodeRequest(contents=[TEXT], target_language_code="pt")
            told = await refused(server.translations.TranslateAndEncode(request))
            assert told.info.reason == "NOT_FINITE"
        request = TranslateAndEncodeRequest(contents=["Rain."], target_language_code="pt")
        response = await server.translations.TranslateAndEncode(request)
        assert response.translations[0].hypotheses[0].text == "Rain."
