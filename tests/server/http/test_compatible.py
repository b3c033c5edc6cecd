"""server.http.compatible: the shapes, codes and words of other services, where their clients do not show them."""

import asyncio
from base64 import b64decode
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from server.admission.quotas import Quota
from server.catalog.catalog import Catalog
from server.errors import Draining
from server.http.compatible.languages import ServedLanguages, name_of
from server.http.compatible.shelf import FILE_BYTES, Ready, Shelf
from tests.server.grpc.test_identity import door
from tests.server.http.asking import asking
from tests.serving import MODEL, eventually, held

CAT = {"q": "A cat.", "source": "en", "target": "pt"}


async def libre(client: httpx.AsyncClient, **fields: Any) -> Any:
    return (await client.post("/translate", json=fields)).json()


@pytest.mark.parametrize("way", ["json", "data", "files", "params"])
async def test_fields_come_in_four_ways(way: str) -> None:
    async with asking() as (_, client):
        fields: Any = {name: (None, value) for name, value in CAT.items()} if way == "files" else CAT
        asked: dict[str, Any] = {way: fields}
        response = await client.post("/translate", **asked)
        assert response.json() == {"translatedText": "A cat."}


async def test_an_array_is_answered_with_arrays() -> None:
    async with asking() as (_, client):
        texts = ["The cat is here.", " ", "", "A dog.\n\n  Two dogs. \n"]
        told = await libre(client, q=texts, source="auto", target="pt", alternatives=1)
        assert told["translatedText"] == texts
        assert [one["language"] for one in told["detectedLanguage"]] == ["en"] * 4
        assert [len(one) for one in told["alternatives"]] == [1, 0, 0, 1]


async def test_alternatives_are_the_other_hypotheses() -> None:
    async with asking() as (_, client):
        told = await libre(client, **CAT, alternatives="2")
        assert told["translatedText"] == "A cat." and len(told["alternatives"]) == 2
        assert (await libre(client, **CAT, alternatives=16))["error"].startswith("Invalid request: alternatives (16)")


async def test_the_same_language_comes_back_as_it_is_without_a_decoder() -> None:
    async with asking() as (server, client):
        server.decoder.gate.close()
        told = await libre(client, q="Onde fica a estação de comboios?", source="auto", target="pt")
        assert told["translatedText"] == "Onde fica a estação de comboios?"
        assert told["detectedLanguage"]["language"] == "pt"
        assert await libre(client, q="x y", source="pt", target="pt") == {"translatedText": "x y"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "Invalid request: missing q parameter"),
        ({"q": "a"}, "Invalid request: missing source parameter"),
        ({"q": "a", "source": "en"}, "Invalid request: missing target parameter"),
        (CAT | {"format": "xml"}, "xml format is not supported"),
        (CAT | {"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        (CAT | {"source": "zz"}, "zz is not supported"),
        (CAT | {"target": "zz"}, "zz is not supported"),
        (CAT | {"source": "pt", "target": "en"}, "pt is not supported"),
        (CAT | {"q": ["a"] * 9}, "Invalid request: request (9) exceeds text limit (8)"),
        (CAT | {"q": [1]}, "Invalid request: q parameter is neither a string nor an array of strings"),
    ],
)
async def test_what_is_wrong_is_told_in_its_words(fields: dict[str, Any], words: str) -> None:
    async with asking() as (_, client):
        response = await client.post("/translate", json=fields)
        assert (response.status_code, response.json()) == (400, {"error": words})


async def test_an_infinity_of_alternatives_is_no_number() -> None:
    async with asking() as (_, client):
        body = b'{"q": "A cat.", "source": "en", "target": "pt", "alternatives": 1e999}'
        response = await client.post("/translate", content=body, headers={"content-type": "application/json"})
        told = {"error": "Invalid request: alternatives parameter is not a number"}
        assert (response.status_code, response.json()) == (400, told)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"q": "\\ud800"}', b"[" * 60_000])
async def test_what_is_no_object_is_told_in_each_services_words(body: bytes) -> None:
    async with asking() as (_, client):
        kind = {"content-type": "application/json"}
        told = await client.post("/translate", content=body, headers=kind)
        assert (told.status_code, told.json()) == (400, {"error": "Invalid JSON format"})
        told = await client.post("/v2/translate", content=body, headers=kind)
        assert told.status_code == 400 and told.json()["message"].startswith("Bad request.")
        told = await client.post("/v1/embeddings", content=body, headers=kind)
        assert told.status_code == 400 and told.json()["error"]["type"] == "invalid_request_error"


async def test_pages_of_libretranslate() -> None:
    async with asking() as (_, client):
        listed = (await client.get("/languages")).json()
        assert [one["code"] for one in listed] == ["en", "pt", "pt-BR"]
        assert listed[0] == {"code": "en", "name": "English", "targets": ["en", "pt", "pt-BR"]}
        assert listed[1]["targets"] == ["pt"]  # which is a target only
        settings = (await client.get("/frontend/settings")).json()
        assert (settings["keyRequired"], settings["language"]["target"]) == (
            False,
            {"code": "pt", "name": "Portuguese"},
        )
        assert (await client.get("/spec")).json()["openapi"] == "3.1.0"
        told = await client.post("/suggest", data={"q": "x"})
        assert (told.status_code, told.json()) == (403, {"error": "Suggestions are disabled on this server."})
        assert (await client.post("/detect", json={"q": "1 2 3"})).json() == [{"confidence": 0.0, "language": "en"}]
        ranked = (await client.post("/detect", json={"q": "Bom dia, senhora."})).json()
        assert ranked[0]["language"] == "pt" and 50 < ranked[0]["confidence"] <= 100


FORM_X = {"content-type": "multipart/form-data; boundary=x"}
CUT = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\nA cat.'
"""A form that breaks off in its file."""
EN_PT = {"source": "en", "target": "pt"}


async def test_a_file_comes_back_under_a_name_that_nobody_guesses() -> None:
    async with asking(door=door(one=["translate"]), max_message_bytes=1024 * 1024) as (server, client):
        text = b"The cat is here.\n\n \nThe dog is there.\n"

        async def sent(name: str, content: bytes, **fields: str) -> httpx.Response:
            return await client.post("/translate_file", data=fields, files={"file": (name, content)})

        key = {"api_key": "one"}
        for source, target, proxy in (("en", "pt", ""), ("auto", "pt", "https"), ("en", "en", "no")):
            form = {"source": source, "target": target} | key
            headers = {"x-forwarded-proto": proxy} if proxy else {}
            files = {"file": ("../a\\Ação (1).TXT", text)}
            told = (await client.post("/translate_file", data=form, files=files, headers=headers)).json()
            scheme, _, url = told["translatedFileUrl"].partition("://")
            assert scheme == ("https" if proxy == "https" else "http")
            ready = await client.get(f"http://{url}")  # without a key
            assert (ready.status_code, ready.content) == (200, text)
            assert ready.headers["content-disposition"] == f'attachment; filename="Acao_1_{target}.txt"'
        gone = await client.get(f"{server.url}/download_file/x.txt")
        assert gone.status_code == 404 and "10 minutes at most" in gone.json()["error"]

        for response, status, words in (
            (await sent("a.txt", text, **EN_PT), 400, "Please contact the server operator to get an API key"),
            (await sent("a.txt", text, **EN_PT, api_key="no"), 403, "Invalid API key"),
            (await sent("a.txt", text, source="en", **key), 400, "Invalid request: missing target parameter"),
            (await client.post("/translate_file", data=EN_PT | key), 400, "Invalid request: missing file parameter"),
            (await sent("a.exe", text, **EN_PT, **key), 400, "Invalid request: file format not supported"),
            (await sent("a.txt", b" \n", **EN_PT, **key), 400, "Invalid request: empty file"),
            (await sent("a.txt", text, source="en", target="zz", **key), 400, "zz is not supported"),
            (await sent("a.txt", text, source="pt", target="en", **key), 400, "pt is not supported"),
            (await sent("a.txt", b"\xff", **EN_PT, **key), 400, "document is no text file (txt) that can be read"),
            (await sent("a.docx", text, source="auto", target="pt", **key), 400, "document is no Word document"),
            (
                await sent("a.txt", b"A cat.\n" * 20_000, **EN_PT, **key),
                413,
                "document has 20000 texts; the server takes",
            ),
            (await sent("a.txt", bytes(2**20), **EN_PT, **key), 413, "the request has"),
            (await client.post("/translate", data=CAT | key, files={"file": b"x"}), 400, "Invalid JSON format"),
            (
                await client.post("/translate_file?api_key=one", content=CUT, headers=FORM_X),
                400,
                "Invalid request: missing",
            ),
        ):
            assert response.status_code == status and response.json()["error"].startswith(words), response.text


async def test_files_that_wait_have_a_time_and_a_room_which_who_has_the_most_gives_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, file = Shelf(8 * FILE_BYTES), Ready("a.txt", "text/plain", bytes(FILE_BYTES))
    first = shelf.put(file, "one")
    many = [shelf.put(file, "other") for _ in range(4)]
    assert [shelf.find(key) is not None for key in (first, *many)] == [True, False, True, True, True]
    large = shelf.put(replace(file, content=bytes(9 * FILE_BYTES)), "third")
    assert shelf.find(large) is None and shelf.find(first) == file
    monkeypatch.setattr("server.http.compatible.shelf.KEPT_S", 0.0)
    late = shelf.put(file, "one")
    assert shelf.find(late) == file
    await eventually(lambda: shelf.find(late) is None)


async def test_keys_are_told_in_each_services_words() -> None:
    async with asking(door=door(one=["translate", "encode", "models"])) as (_, client):
        for key, status, words in (
            (None, 400, "Please contact the server operator to get an API key"),
            ("no", 403, "Invalid API key"),
            ("one", 200, None),
        ):
            fields = CAT if key is None else CAT | {"api_key": key}
            for asked in ({"json": fields}, {"data": fields}, {"params": fields}):
                response = await client.post("/translate", **asked)  # type: ignore[arg-type]
                assert (response.status_code, response.json().get("error")) == (status, words)
            deepl = {} if key is None else {"authorization": f"DeepL-Auth-Key {key}"}
            body = {"text": ["A cat."], "target_lang": "PT"}
            response = await client.post("/v2/translate", json=body, headers=deepl)
            assert response.status_code == (200 if status == 200 else 403)
            bearer = {} if key is None else {"authorization": f"Bearer {key}"}
            response = await client.post("/v1/embeddings", json={"input": "A cat."}, headers=bearer)
            assert response.status_code == (200 if status == 200 else 401)
        assert (await client.get("/languages")).status_code == 200  # whose clients send no key
        assert (await client.get("/frontend/settings")).json()["keyRequired"] is True


async def test_overload_is_too_many_requests_and_an_end_is_not() -> None:
    asks = {
        "/translate": {"q": list("abcdefgh"), "source": "en", "target": "pt"},
        "/v2/translate": {"text": list("abcdefgh"), "source_lang": "EN", "target_lang": "PT"},
        "/v1/embeddings": {"input": list("abcdefgh")},
    }
    async with asking(max_waiting=8, max_rows=1) as (server, client):
        server.decoder.gate.close()
        first = asyncio.create_task(client.post("/translate", json=asks["/translate"]))
        await held(server)
        for path, body in asks.items():
            response = await client.post(path, json=body)
            assert (response.status_code, "retry-after" in response.headers) == (429, True), path
        assert response.json()["error"]["code"] == "rate_limit_exceeded"
        server.admission.close(Draining)
        for path, body in asks.items():
            assert (await client.post(path, json=body)).status_code == 503
        server.decoder.gate.open()
        await first


async def test_a_quota_is_a_slowdown() -> None:
    async with asking(quota=Quota(texts_per_s=0.001)) as (_, client):
        await libre(client, **CAT)
        assert (await libre(client, **CAT))["error"].startswith("Slowdown: ")


async def test_a_text_that_is_too_long_is_told_with_both_numbers() -> None:
    async with asking() as (_, client):
        told = await libre(client, q="qzx" * 100, source="en", target="pt")
        assert told["error"].startswith("q[0] has ") and "the model takes 128" in told["error"]
        deepl = {"text": ["a", "qzx" * 100], "source_lang": "EN", "target_lang": "PT"}
        told = (await client.post("/v2/translate", json=deepl)).json()
        assert told["message"].startswith("text[1] has ") and "the model takes 128" in told["message"]


async def test_a_sentence_that_is_too_long_is_divided() -> None:
    async with asking() as (_, client):
        text = "The cats, the dogs and the birds " * 20 + "are here."
        assert (await libre(client, q=text, source="en", target="pt"))["translatedText"] == text


async def test_tags_in_a_sentence_take_a_model_that_aligns() -> None:
    async with asking() as (_, client):
        told = await libre(client, q="A <b>cat</b> is here.", source="en", target="pt", format="html")
        assert "does not give an alignment" in told["error"]


async def test_deepl_has_its_shapes_and_words() -> None:
    async with asking() as (server, client):
        form = {
            "text": ["A cat.", "The cats\nare here."],
            "source_lang": "en",
            "target_lang": "PT-BR",
            "formality": "prefer_less",
        }
        told = (await client.post("/v2/translate", data=form)).json()
        assert told["translations"][1] == {
            "detected_source_language": "EN",
            "text": "The cats\nare here.",
            "billed_characters": 18,
        }
        assert (await client.get("/v2/usage")).json() == {"character_count": 24, "character_limit": 10**12}
        for kind, listed in (("source", ["EN"]), ("target", ["PT", "PT-BR"])):
            languages = (await client.get("/v2/languages", params={"type": kind})).json()
            assert [one["language"] for one in languages] == listed
        assert (await client.get("/v2/glossaries")).json() == {"glossaries": []}
        cat = {"text": "A cat.", "source_lang": "EN", "target_lang": "PT"}
        for more, words in (
            ({"target_lang": "ZZ"}, "Value for 'target_lang' not supported."),
            ({"target_lang": ""}, "Value for 'target_lang' not specified."),
            ({"text": 1}, "Parameter 'text' not specified."),
            ({"tag_handling": "xml"}, "Value for 'tag_handling' not supported"),
            ({"split_sentences": ["1"]}, "Value for 'split_sentences' not supported"),
            ({"formality": "more"}, "'formality' is not supported for given 'target_lang'."),
            ({"glossary_id": "g"}, "Parameter 'glossary_id' not supported."),
            ({"source_lang": "PT", "target_lang": "PT-BR"}, "Value for 'target_lang' not supported from PT."),
        ):
            response = await client.post("/v2/translate", json=cat | more)
            assert response.status_code == 400 and words in response.json()["message"], response.text
        labels = {"method": "deepl.TranslationService/Translate", "code": "OK"}
        assert server.metric("dragoman_rpc_requests_total", **labels) == 1


async def test_openai_has_its_shapes_and_words() -> None:
    async with asking() as (_, client):
        told = (await client.post("/v1/embeddings", json={"input": ["A cat.", "A dog."], "model": "copy"})).json()
        assert (told["object"], told["model"], told["usage"]["total_tokens"] > 4) == ("list", "copy", True)
        assert [one["index"] for one in told["data"]] == [0, 1]
        vectors = np.array([one["embedding"] for one in told["data"]], np.float32)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
        coded = (await client.post("/v1/embeddings", json={"input": "A cat.", "encoding_format": "base64"})).json()
        np.testing.assert_array_equal(np.frombuffer(b64decode(coded["data"][0]["embedding"]), "<f4"), vectors[0])
        fewer = (await client.post("/v1/embeddings", json={"input": "A cat.", "dimensions": 2})).json()
        assert len(fewer["data"][0]["embedding"]) == 2
        for body, status, code, param in (
            ({"input": "a", "model": "gpt"}, 404, "model_not_found", "model"),
            ({"input": [1, 2]}, 400, None, "input"),
            ({"input": [[1], [2]]}, 400, None, "input"),
            ({"input": ""}, 400, None, "input[0]"),
            ({"input": []}, 400, None, "input"),
            ({}, 400, None, "input"),
            ({"input": "a", "dimensions": 5}, 400, None, "dimensions"),
            ({"input": "a", "dimensions": "2"}, 400, None, "dimensions"),
            ({"input": "a", "encoding_format": "int8"}, 400, None, "encoding_format"),
            ({"input": "a", "model": 1}, 400, None, "model"),
            ({"input": "a", "temperature": 1}, 400, None, "temperature"),
        ):
            response = await client.post("/v1/embeddings", json=body)
            error = response.json()["error"]
            assert (response.status_code, error["code"], error["param"]) == (status, code, param)
            assert error["type"] == "invalid_request_error" and "contents" not in error["message"]


class Entry:
    """What is asked of a translator here."""

    def __init__(self, *languages: tuple[str, ...]) -> None:
        source, target = languages
        self.model = replace(MODEL, name=f"{source}-{target}", source_languages=source, target_languages=target)


def test_codes_of_all_kinds_find_the_language_that_is_served() -> None:
    entries: Any = [Entry(("en",), ("pt-BR", "zh-Hans")), Entry(("en", "he"), ("de",)), Entry(("zh-Hant",), ("en",))]
    languages = ServedLanguages(Catalog(entries))
    assert languages.targets_of("en") == ["pt-BR", "zh-Hans", "de"]
    known = {"iw": "he", "EN-GB": "en", "pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant", "zh-TW": "zh-Hant"}
    assert {code: languages.find(code) for code in known} == known
    assert languages.find("zz") is None and languages.find("") is None
    names = {"de": "German", "pt-BR": "Portuguese (BR)", "xx": "xx", "xx-YY": "xx-YY"}
    assert {tag: name_of(tag) for tag in names} == names
