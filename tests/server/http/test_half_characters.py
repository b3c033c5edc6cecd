"""Half a surrogate pair in a request is in no answer, no log line and no error's text, whichever field it is in."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from server.telemetry.logs import FIELDS
from tests.server.http.asking import ENCODE, JSON, STREAM, TRANSLATE, asking
from tests.server.http.test_bad_input import still_well

HALF = "\ud800"
SHAPES: list[Any] = [HALF, [HALF], {HALF: "x"}, {"x": HALF}]
NATIVE = {"contents": ["A cat."], "targetLanguageCode": "pt"}
FACES: dict[str, dict[str, Any]] = {
    TRANSLATE: NATIVE | dict.fromkeys(("labels", "decoding", "model", "priority"), ""),
    STREAM: {"content": "A cat.", "targetLanguageCode": "pt", "labels": {}, "decoding": {}},
    ENCODE: {"contents": ["A cat."], "poolings": [], "prompt": ""},
    "/dragoman.v1.TranslationService/TranslateAndEncode": NATIVE | {"poolings": []},
    "/dragoman.v1.TranslationService/Score": {"contents": [{"content": "A", "targets": ["B"]}]},
    "/dragoman.v1.ModelService/GetModel": {"name": ""},
    "/translate": {"q": "A cat.", "source": "en", "target": "pt", "format": "text", "alternatives": 1, "api_key": ""},
    "/detect": {"q": "A cat."},
    "/v2/translate": {"text": "A", "target_lang": "PT", "source_lang": "EN", "formality": "", "split_sentences": "1"},
    "/v1/embeddings": {"input": "A cat.", "model": "", "encoding_format": "float", "dimensions": 4, "user": ""},
}
CODECS = {"unicode_escape": rb"\ud800", "raw_unicode_escape": rb"\ud800", "utf-7": b"+2AA-", "punycode": b"a-b"}
"""That Python has, and what is half a character in most of them."""


def halved(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same request with half a character in one place after the other."""
    yield fields | {HALF: 1}
    for name in fields:
        yield from (fields | {name: shape} for shape in SHAPES)


def told(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record) + str(getattr(record, FIELDS, ""))


async def test_half_a_character_is_refused_by_every_face_in_every_field(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with asking(log_requests=True, log_text=True, log_labels=True) as (server, client):
        for path, fields in FACES.items():
            for body in halved(fields):
                asked = ascii((path, body))
                response = await client.post(path, content=json.dumps(body), headers={"content-type": JSON})
                assert 400 <= response.status_code < 500, asked
                assert HALF not in json.dumps(response.json(), ensure_ascii=False), asked
        await still_well(server)
    assert len(caplog.records) > 100
    assert not [ascii(told(record)) for record in caplog.records if HALF in told(record)]


@pytest.mark.parametrize("charset", CODECS)
async def test_a_form_is_utf8_whatever_codec_it_names(charset: str) -> None:
    def form(value: bytes) -> bytes:
        fields = {b"q": value, b"source": b"en", b"target": b"pt"}
        parts = (b"--x\r\ncontent-disposition: form-data; name=%s\r\n\r\n%s\r\n" % one for one in fields.items())
        return b"".join(parts) + b"--x--\r\n"

    async with asking() as (server, client):
        kind = "multipart/form-data; boundary=x"
        named = {"content-type": f"{kind}; charset={charset}"}
        response = await client.post("/translate", content=form(CODECS[charset]), headers=named)
        assert (response.status_code, "charset=utf-8" in response.json()["error"]) == (415, True)
        broken = await client.post("/translate", content=form(b"caf\xe9"), headers={"content-type": kind})
        assert broken.status_code == 400
        whole = {"content-type": f"{kind}; charset=UTF-8"}
        assert (await client.post("/translate", content=form("café".encode()), headers=whole)).status_code == 200
        await still_well(server)
