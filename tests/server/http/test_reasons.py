"""Every reason of docs/api.md, raised inside of a server, comes out of every face with its status, in its own shape."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.json_format import ParseDict
from google.rpc.status_pb2 import Status

from server import errors
from server.errors import ServerError
from server.kserve.v2.inference_pb2_grpc import GRPCInferenceServiceStub
from server.translation.translator import Translator
from tests.server.http.asking import ENCODE, STREAM, TRANSLATE, asking, reason, translate_json
from tests.server.kserve.test_service import asking as inference
from tests.serving import Serving, refused, translate_request

DOCS = Path(__file__).parents[3] / "docs"
ELSEWHERE = {"SERVICE_NOT_FOUND", "TOO_MANY_WATCHERS"}
"""What only gRPC's own services can answer."""
TEXT = "The cat is here."
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": (TRANSLATE, translate_json(TEXT)),
    "LibreTranslate": ("/translate", {"q": TEXT, "source": "en", "target": "pt"}),
    "DeepL": ("/v2/translate", {"text": [TEXT], "source_lang": "EN", "target_lang": "PT"}),
    "OpenAI": ("/v1/embeddings", {"input": TEXT}),
}
"""By the column of docs/http.md."""


def rows(page: str, heading: str, columns: int) -> Iterator[list[str]]:
    """Of the table below a heading."""
    _, _, text = (DOCS / page).read_text("utf-8").partition(f"\n## {heading}\n")
    for line in re.findall(r"^\| `.*$", text.partition("\n## ")[0], re.MULTILINE):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        assert len(cells) == columns, line
        yield cells


KINDS = {kind.reason: kind for kind in vars(errors).values() if hasattr(kind, "reason")}


def error_of(name: str, status: str, metadata: str) -> ServerError:
    """One of its kind, whatever that is raised for."""
    kind: type[ServerError] = KINDS[name]
    error = kind.__new__(kind)
    ServerError.__init__(error, f"told of {name}", {key: 7 for key in re.findall(r"`(\w+)`", metadata)})
    assert error.status == status
    return error


ERRORS = [error_of(name.strip("`"), status.strip("`"), told) for name, status, _, told in rows("api.md", "Errors", 4)]


def statuses() -> dict[str, dict[str, int]]:
    """By reason or gRPC's code, of each face."""
    found = {}
    for names, *codes in rows("http.md", "What errors are in each API", 1 + len(ASKS)):
        for name in re.findall(r"`(\w+)`", names):
            found[name] = dict(zip(ASKS, map(int, codes), strict=True))
    return found


def check_shape(face: str, response: httpx.Response, error: ServerError) -> None:
    told = response.json()
    match face:
        case "ours":
            status = ParseDict(told, Status())
            assert (status.code, status.message) == (grpc.StatusCode[error.status].value[0], error.message)
            assert reason(response) == error.reason
        case "LibreTranslate":
            assert told.keys() == {"error"} and isinstance(told["error"], str) and "{" not in told["error"]
        case "DeepL":
            assert told == {"message": error.message}
        case "OpenAI":
            assert told["error"].keys() == {"message", "type", "param", "code"}
            assert told["error"]["message"] == error.message


async def check_http(client: httpx.AsyncClient, error: ServerError, expected: dict[str, int]) -> None:
    for face, (path, body) in ASKS.items():
        response = await client.post(path, json=body)
        assert response.status_code == expected[face], (face, error.reason, response.text)
        assert ("retry-after" in response.headers) == (error.status == "UNAVAILABLE"), (face, error.reason)
        check_shape(face, response, error)
    connect = await client.post(ENCODE, json={"contents": [TEXT]}, headers={"connect-protocol-version": "1"})
    assert connect.status_code == expected["ours"]
    assert connect.json()["code"] == error.status.lower()
    stream = await client.post(STREAM, json={"content": TEXT, "targetLanguageCode": "pt"})
    assert (stream.status_code, reason(stream)) == (expected["ours"], error.reason)


async def check_grpc(server: Serving, error: ServerError) -> None:
    told = await refused(server.translations.Translate(translate_request(TEXT)))
    assert (told.code.name, told.message, told.info.reason) == (error.status, error.message, error.reason)
    service: Any = GRPCInferenceServiceStub(server.channel)
    told = await refused(service.ModelInfer(inference(TEXT.encode())))
    assert (told.code.name, told.info.reason) == (error.status, error.reason)
    [response] = [one async for one in service.ModelStreamInfer(iter([inference(TEXT.encode())]))]
    parameters = response.infer_response.parameters
    assert response.error_message == error.message
    assert [parameters[key].string_param for key in ("reason", "status")] == [error.reason, error.status]


def raise_inside(error: ServerError, patch: pytest.MonkeyPatch) -> None:
    """From where texts are translated and encoded."""

    async def refuse(*arguments: object, **more: object) -> None:
        raise error

    async def refuse_streaming(*arguments: object, **more: object) -> Any:
        raise error
        yield

    patch.setattr(Translator, "translate", refuse)
    patch.setattr(Translator, "encode", refuse)
    patch.setattr(Translator, "stream", refuse_streaming)


async def test_every_face_tells_every_reason_and_the_server_goes_on() -> None:
    expected = statuses()
    async with asking() as (server, client):
        for error in ERRORS:
            with pytest.MonkeyPatch.context() as patch:
                raise_inside(error, patch)
                if error.reason not in ELSEWHERE:
                    await check_http(client, error, expected.get(error.reason) or expected[error.status])
                await check_grpc(server, error)
        assert (await client.post(TRANSLATE, json=translate_json(TEXT))).status_code == 200


def test_all_of_them_are_there() -> None:
    """Those of docs/api.md, which another test holds to be all."""
    reasons = {error.reason for error in ERRORS}
    assert len(reasons) == len(ERRORS) > 45
    assert reasons > ELSEWHERE
