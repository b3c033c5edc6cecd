"""server.http.native: our own API by HTTP is our API, with the same observer, admission and end as gRPC."""

import asyncio
import json
import logging
from base64 import b64decode
from typing import Any

import jsonschema
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status

from dragoman.v1.encoding_pb2 import EncodeRequest, EncodeResponse
from dragoman.v1.translation_pb2 import TranslateRequest, TranslateResponse
from server.admission.quotas import Quota
from server.errors import Draining
from server.telemetry.calls import REQUEST_ID_KEY
from tests.server.grpc.test_identity import door
from tests.server.http.asking import ENCODE, JSON, STREAM, TRANSLATE, asking, reason, translate_json
from tests.serving import eventually, held, refused, translate_request


async def test_a_translation_is_that_of_grpc() -> None:
    async with asking() as (server, client):
        told = (await client.post(TRANSLATE, json=translate_json("A cat."))).json()
        known = await server.translations.Translate(translate_request("A cat.", decoding=None))
        response = ParseDict(told, TranslateResponse())
        assert response.model == known.model
        assert response.translations[0].hypotheses == known.translations[0].hypotheses


async def test_every_method_that_takes_one_request_is_there() -> None:
    bodies: dict[str, Any] = {
        "TranslationService/TranslateAndEncode": translate_json("A cat."),
        "TranslationService/Score": {
            "contents": [{"content": "A cat.", "targets": ["A cat."]}],
            "targetLanguageCode": "pt",
        },
        "EncodingService/Encode": {"contents": ["A cat."]},
        "ModelService/ListModels": {},
        "ModelService/GetModel": {"name": "copy"},
    }
    async with asking() as (_, client):
        for path, body in bodies.items():
            response = await client.post(f"/dragoman.v1.{path}", json=body)
            assert response.status_code == 200, response.text
            assert response.json()


async def test_vectors_in_bytes_are_base64() -> None:
    async with asking() as (server, client):
        request = {"contents": ["A cat."], "type": "EMBEDDING_TYPE_INT8"}
        response = ParseDict((await client.post(ENCODE, json=request)).json(), EncodeResponse())
        known = await server.encodings.Encode(ParseDict(request, EncodeRequest()))
        assert response.embeddings[0].data == known.embeddings[0].data != b""


async def test_a_large_batch_is_read_and_written_on_another_thread() -> None:
    async with asking(max_message_bytes=1024 * 1024, max_contents=256, max_waiting=256) as (_, client):
        texts = [f"{index}: {'a cat, ' * 40}" for index in range(256)]
        told = (await client.post(TRANSLATE, json=translate_json(*texts))).json()
        assert [one["hypotheses"][0]["text"] for one in told["translations"]] == [text.strip() for text in texts]


async def test_protobuf_does_as_well() -> None:
    async with asking() as (_, client):
        body, kind = translate_request("A cat.").SerializeToString(), {"content-type": "application/proto"}
        response = await client.post(TRANSLATE, content=body, headers=kind)
        assert response.headers["content-type"] == "application/proto"
        assert TranslateResponse.FromString(response.content).translations[0].hypotheses[0].text == "A cat."
        assert (await client.post(TRANSLATE, content=b"\xff", headers=kind)).status_code == 400


async def test_an_error_is_a_status_with_its_details_or_connects() -> None:
    async with asking() as (server, client):
        told = await refused(server.translations.Translate(translate_request(" ")))
        plain = await client.post(TRANSLATE, json=translate_json(" "))
        status = ParseDict(plain.json(), Status())
        assert (plain.status_code, status.code, status.message) == (400, 3, told.message)
        assert MessageToDict(status)["details"][0]["reason"] == told.info.reason == "BLANK_CONTENT"
        asked = {"connect-protocol-version": "1"}
        connect = (await client.post(TRANSLATE, json=translate_json(" "), headers=asked)).json()
        assert (connect["code"], connect["message"]) == ("invalid_argument", told.message)
        info, fields = ErrorInfo(), BadRequest()
        for message, detail in zip((info, fields), connect["details"], strict=True):
            assert detail["type"] == message.DESCRIPTOR.full_name
            message.ParseFromString(b64decode(detail["value"] + "=="))
        assert info == told.info
        assert [violation.field for violation in fields.field_violations] == told.fields == ["contents[0]"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "load JSON"),
        (b'{"content": []}', 'no field named "content"'),
        (b'{"contents": "A cat."}', "contents"),
        (b'{"contents": ["\\ud800"]}', ""),
        (b'{"contents": ["\xff"]}', "utf-8"),
        (b'{"contents": ' + b"[" * 100_000, ""),
        *((body, "it does not begin as an object") for body in (b"", b"null", b"[]", b'""', b"\xef\xbb\xbf{}")),
        (b'{"decoding": {"numBeams": 1e99}}', ""),
        (b'{"labels": ' + b'{"a":' * 200 + b"1" + b"}" * 201, ""),
    ],
)
async def test_what_is_no_message_is_told_so(body: bytes, why: str) -> None:
    async with asking(max_message_bytes=1024 * 1024) as (_, client):
        response = await client.post(TRANSLATE, content=body, headers={"content-type": JSON})
        assert response.status_code == 400, response.text
        assert reason(response) == "INVALID_MESSAGE"
        assert why in response.json()["message"]


async def test_a_stream_comes_in_pieces_and_ends_with_the_whole() -> None:
    async with asking() as (server, client):
        server.decoder.gate.let(1)
        asked = {"content": "A cat and a dog.", "targetLanguageCode": "pt"}
        async with client.stream("POST", STREAM, json=asked) as response:
            assert response.headers["content-type"] == "text/event-stream"
            pieces = response.aiter_text()
            assert await anext(pieces) == 'event: delta\ndata: {"text": "A"}\n\n'  # the rest is not decoded yet
            server.decoder.gate.open()
            rest = "".join([piece async for piece in pieces])
        names = [line.removeprefix("event: ") for line in rest.split("\n") if line.startswith("event")]
        assert set(names[:-1]) == {"delta"} and names[-1] == "translation"
        last = json.loads(rest.rstrip().rpartition("data: ")[2])
        assert last["hypotheses"][0]["text"] == "A cat and a dog."


async def test_a_stream_that_cannot_begin_is_an_error_and_one_that_breaks_ends_with_one() -> None:
    async with asking() as (server, client):
        refusal = await client.post(STREAM, json={"content": " ", "targetLanguageCode": "pt"})
        assert (refusal.status_code, reason(refusal)) == (400, "BLANK_CONTENT")
        server.decoder.gate.let(1)
        async with client.stream("POST", STREAM, json={"content": "A cat.", "targetLanguageCode": "pt"}) as response:
            pieces = response.aiter_text()
            await anext(pieces)
            server.calls.end(Draining())
            [last] = [piece async for piece in pieces]
        assert last.startswith("event: error\n")
        assert json.loads(last.partition("data: ")[2])["reason"] == "DRAINING"


async def test_a_stream_without_an_event_shows_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.http.events.BEAT_S", 0.01)
    async with asking() as (server, client):
        server.decoder.gate.close()
        async with client.stream("POST", STREAM, json={"content": "A cat.", "targetLanguageCode": "pt"}) as response:
            assert (await anext(response.aiter_text())).startswith(":\n\n")
            server.decoder.gate.open()


@pytest.mark.parametrize("path", [TRANSLATE, STREAM])
async def test_who_leaves_frees_their_rows(path: str) -> None:
    async with asking() as (server, client):
        server.decoder.gate.close()
        body = translate_json("A cat.") if path == TRANSLATE else {"content": "A cat.", "targetLanguageCode": "pt"}
        asked = asyncio.create_task(client.post(path, json=body))
        await held(server)
        asked.cancel()
        await eventually(lambda: server.calls.running == 0)
        server.decoder.gate.open()
        await eventually(lambda: server.runner.idle)
        method = "Translate" if path == TRANSLATE else "StreamTranslate"
        labels = {"method": f"http.TranslationService/{method}", "code": "CANCELLED"}
        await eventually(lambda: server.metric("dragoman_rpc_requests_total", **labels) == 1)


async def test_a_call_is_observed_as_one_of_grpc(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "server.telemetry.calls")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with asking(log_requests=True) as (server, client):
        headers = {REQUEST_ID_KEY: "mine-7", "traceparent": trace}
        response = await client.post(TRANSLATE, json=translate_json("A cat."), headers=headers)
        assert response.headers[REQUEST_ID_KEY] == "mine-7"
        assert {part.split(";")[0] for part in response.headers["server-timing"].split(", ")} >= {"queue", "total"}
        [facts] = [getattr(record, "fields", None) for record in caplog.records]
        assert facts is not None
        assert (facts["request_id"], facts["caller"], facts["code"]) == ("mine-7", "ipv4:127.0.0.1", "OK")
        assert facts["method"] == "http.TranslationService/Translate"
        labels = {"method": "http.TranslationService/Translate", "code": "OK"}
        assert server.metric("dragoman_rpc_requests_total", **labels) == 1
        await client.post(TRANSLATE, json=translate_json(" "))
        assert server.metric("dragoman_refusals_total", reason="BLANK_CONTENT") == 1


async def test_overload_is_told_with_the_time_to_come_back() -> None:
    async with asking(max_waiting=8, max_rows=1) as (server, client):
        server.decoder.gate.close()
        asked = [asyncio.create_task(client.post(TRANSLATE, json=translate_json(*"abcdefgh"))) for _ in range(2)]
        await held(server)
        await eventually(lambda: server.admission._engine.waiting > 0)
        response = await client.post(TRANSLATE, json=translate_json(*"abcdefgh"))
        assert (response.status_code, reason(response)) == (503, "OVERLOADED")
        assert int(response.headers["retry-after"]) >= 1
        server.decoder.gate.open()
        await asyncio.gather(*asked)


async def test_a_deadline_that_cannot_be_kept_is_refused() -> None:
    async with asking(max_rows=1) as (server, client):
        server.decoder.gate.close()
        asked = asyncio.create_task(client.post(TRANSLATE, json=translate_json("A cat.")))
        await held(server)
        late = await client.post(TRANSLATE, json=translate_json("A dog."), headers={"connect-timeout-ms": "0"})
        assert (late.status_code, reason(late)) == (503, "WOULD_BE_LATE")
        assert "0 ms are left: give the call a later deadline" in late.json()["message"]  # and not when to come again
        server.decoder.gate.open()
        await asked


@pytest.mark.parametrize("digits", [11, 400, 5000])
async def test_a_deadline_of_more_digits_than_connect_allows_is_none(digits: int) -> None:
    async with asking() as (_, client):
        late = {"connect-timeout-ms": "9" * digits}
        response = await client.post(TRANSLATE, json=translate_json("A cat."), headers=late)
        assert response.status_code == 200


@pytest.mark.parametrize("told", ["abc", "-1", "1.5", "5s"])
async def test_a_deadline_that_is_no_number_is_refused(told: str) -> None:
    async with asking() as (_, client):
        response = await client.post(TRANSLATE, json=translate_json("A cat."), headers={"connect-timeout-ms": told})
        assert (response.status_code, reason(response)) == (400, "INVALID_FIELD")
        said = f'connect-timeout-ms is "{told}"; send whole milliseconds, such as 5000, or leave it out'
        assert response.json()["message"] == said


async def test_a_server_that_ends_says_so_until_it_has() -> None:
    async with asking() as (server, client):
        assert (await client.get("/health")).json() == {"status": "ok"}
        server.admission.close(Draining)
        server.health.end()
        for path in ("/health", "/ready"):
            response = await client.get(path)
            assert (response.status_code, response.json()) == (503, {"status": "draining"})
        response = await client.post(TRANSLATE, json=translate_json("A cat."))
        assert (response.status_code, reason(response)) == (503, "DRAINING")
        assert response.headers["retry-after"] == "1"


async def test_each_route_needs_its_scope_and_a_wrong_key_is_known() -> None:
    async with asking(door=door(one=["translate"])) as (_, client):
        paths = {TRANSLATE: translate_json("A cat."), ENCODE: {"contents": ["A cat."]}}
        for key, statuses in ((None, (401, 401)), ("Bearer no", (401, 401)), ("Bearer one", (200, 403))):
            headers = {} if key is None else {"authorization": key}
            found = [await client.post(path, json=body, headers=headers) for path, body in paths.items()]
            assert tuple(response.status_code for response in found) == statuses
            assert ("www-authenticate" in found[0].headers) == (statuses[0] == 401)
        for path, status in (("/metrics", 403), ("/v1/models", 403), ("/health", 200), ("/docs", 200)):
            assert (await client.get(path, headers={"authorization": "Bearer one"})).status_code == status


async def test_a_quota_holds_for_both_faces_together() -> None:
    async with asking(quota=Quota(calls=1)) as (server, client):
        server.decoder.gate.close()
        call = asyncio.ensure_future(server.translations.Translate(translate_request("A cat.")))
        await held(server)
        response = await client.post(TRANSLATE, json=translate_json("A dog."))
        assert (response.status_code, reason(response)) == (429, "QUOTA_EXCEEDED")
        server.decoder.gate.open()
        await call


async def test_models_metrics_and_pages_are_there() -> None:
    async with asking() as (_, client):
        models = (await client.get("/v1/models")).json()
        assert models["object"] == "list"
        [model] = models["data"]
        assert (model["id"], model["object"], model["dragoman"]["maxSourceTokens"]) == ("copy", "model", 128)
        assert (await client.get("/v1/models/copy")).json() == model
        none = await client.get("/v1/models/paste")
        assert (none.status_code, reason(none)) == (404, "MODEL_NOT_FOUND")
        page = await client.get("/metrics", headers={"accept": "application/openmetrics-text"})
        assert page.headers["content-type"].startswith("application/openmetrics-text")
        assert 'dragoman_rpc_requests_total{code="OK",method="http.ModelService/ListModels"} 1.0' in page.text
        docs = await client.get("/docs")
        assert docs.headers["content-type"].startswith("text/html")
        assert "<script" not in docs.text and "POST /translate" in docs.text
        assert "--data-binary @letter.md" in docs.text and "/v1/document?format=md" in docs.text
        assert (await client.head("/docs")).status_code == 200
        assert (await client.get("/page.css")).headers["content-type"].startswith("text/css")


async def test_pages_tell_of_the_server_where_it_is_found() -> None:
    """However it calls itself: a container listens on 0.0.0.0, and a proxy may have ended TLS."""
    async with asking(http_hosts=("translate.example",)) as (_, client):
        found = {"host": "translate.example:8443", "x-forwarded-proto": "https"}
        text = (await client.get("/docs", headers=found)).text
        assert "curl https://translate.example:8443/health<" in text
        assert text.count("https://translate.example:8443/") == text.count("<pre>curl")


async def test_the_document_describes_what_is_answered() -> None:
    async with asking() as (_, client):
        document = (await client.get("/openapi.json")).json()
        assert document["openapi"] == "3.1.0"
        described = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
        for method, path in described - {("GET", "/download_file/{name}"), ("GET", "/v1/models/{name}")}:
            assert (await client.request(method, path)).status_code not in (404, 405), path
        operation = document["paths"][TRANSLATE]["post"]
        example = operation["requestBody"]["content"][JSON]["example"]
        response = await client.post(TRANSLATE, json=example | {"targetLanguageCode": "pt"})
        schema = operation["responses"]["200"]["content"][JSON]["schema"] | {"components": document["components"]}
        jsonschema.validate(response.json(), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"translations": [{"hypotheses": [{"text": 1}]}]}, schema)
        ParseDict(example, TranslateRequest())


async def test_the_document_describes_what_is_asked() -> None:
    """Streams too, and each field of a query that is read."""
    async with asking() as (_, client):
        document = (await client.get("/openapi.json")).json()
        operation = document["paths"][STREAM]["post"]
        schema = operation["requestBody"]["content"][JSON]["schema"] | {"components": document["components"]}
        jsonschema.validate({"content": "A cat.", "decoding": {"numBeams": 4}}, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"contents": ["A cat."]}, schema)
        response = await client.post(STREAM, json={"content": "A cat.", "targetLanguageCode": "pt"})
        assert response.headers["content-type"] in operation["responses"]["200"]["content"]
        query = {one["name"]: one for one in document["paths"]["/v1/document"]["post"]["parameters"]}
        assert [name for name, one in query.items() if one.get("required")] == ["format"]
        asked = {"format": "txt", "source": "en", "target": "pt", "model": "copy"}
        assert asked.keys() == query.keys()
        assert "docx" in query["format"]["schema"]["enum"]
        assert (await client.post("/v1/document", params=asked, content=b"A cat.")).content == b"A cat."
        response = await client.post("/v1/document", params=asked | {"model": "none"}, content=b"A cat.")
        assert reason(response) == "MODEL_NOT_FOUND"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("format=txt&targt=pt", '"targt" is no field of the query; it may have format, source, target, model'),
        ("format=txt&target=pt&target=en", "the query has 2 times target; send it once"),
    ],
)
async def test_a_field_of_a_query_that_would_be_dropped_is_refused(query: str, message: str) -> None:
    async with asking() as (_, client):
        response = await client.post(f"/v1/document?{query}", content=b"A cat.")
        assert (response.status_code, reason(response)) == (400, "INVALID_FIELD")
        assert response.json()["message"] == message


async def test_a_form_with_a_document_is_refused() -> None:
    """What is around its file was translated, too."""
    async with asking() as (_, client):
        response = await client.post("/v1/document?format=txt&target=pt", files={"file": ("a.txt", b"A cat.")})
        assert (response.status_code, reason(response)) == (415, "UNSUPPORTED_MEDIA_TYPE")
        assert response.json()["message"].endswith("; send the file alone, as curl --data-binary @FILE does")


async def test_what_is_not_there_is_told() -> None:
    async with asking() as (_, client):
        response = await client.get("/nope")
        assert (response.status_code, reason(response)) == (404, "PATH_NOT_FOUND")
        response = await client.get(TRANSLATE)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        response = await client.get("/dragoman.v1.EncodingService/StreamEncode")
        assert response.status_code == 404
        response = await client.post(TRANSLATE, content=b"{}", headers={"content-type": "text/plain"})
        assert (response.status_code, reason(response)) == (415, "UNSUPPORTED_MEDIA_TYPE")
        response = await client.post(TRANSLATE, json={}, headers={"content-encoding": "gzip"})
        assert response.status_code == 415


async def test_the_call_before_is_forgotten() -> None:
    """One connection, and two calls: what is known of the first is not told of the second."""
    async with asking() as (_, client):
        ids = {(await client.post(TRANSLATE, json=translate_json("A cat."))).headers[REQUEST_ID_KEY] for _ in range(2)}
        assert len(ids) == 2
