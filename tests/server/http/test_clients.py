"""Clients that nobody here wrote, unchanged, and the requests of programs as their sources make them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import deepl
import httpx
import numpy as np
import pytest
from deep_translator import LibreTranslator
from libretranslate_aio import AsyncLibreTranslate, BadRequestError, ForbiddenError, RateLimitError
from libretranslatepy import LibreTranslateAPI

from server.admission.quotas import Quota
from tests.fakes import WAIT_S
from tests.server.grpc.test_identity import door
from tests.server.http.asking import asking
from tests.serving import held

T = TypeVar("T")


async def apart(function: Callable[..., T], *arguments: Any) -> T:
    """What a client does that blocks, while the server answers it here."""
    return await asyncio.to_thread(function, *arguments)


async def test_libretranslatepy() -> None:
    async with asking() as (server, _):
        client = LibreTranslateAPI(server.url)
        assert await apart(client.translate, "A cat.", "en", "pt") == "A cat."
        assert (await apart(client.detect, "Bom dia, senhora."))[0]["language"] == "pt"
        assert [one["code"] for one in await apart(client.languages)] == ["en", "pt", "pt-BR"]
    async with asking(door=door(one=["translate"])) as (server, _):
        assert await apart(LibreTranslateAPI(server.url, "one").translate, "A cat.", "en", "pt") == "A cat."


async def test_libretranslate_aio(tmp_path: Path) -> None:
    async with asking(max_rows=2, max_waiting=8) as (server, other), AsyncLibreTranslate(server.url) as client:
        found = await client.translate(["The cat is here.", "A dog."], "auto", "pt", alternatives=1)
        texts = [one.translated_text for one in found] if isinstance(found, list) else found.translated_text
        assert texts == ["The cat is here.", "A dog."]
        assert [one.code for one in await client.languages()] == ["en", "pt", "pt-BR"]
        assert not (await client.frontend_settings()).key_required
        assert await client.health()
        assert ".docx" in (await client.frontend_settings()).supported_files_format
        (tmp_path / "cat.md").write_text("# A *cat*\n")
        translated = await client.translate_file(tmp_path / "cat.md", "auto", "pt")
        assert translated.translated_file_url.endswith(".cat_pt.md")
        assert (await other.get(translated.translated_file_url)).text == "# A *cat*\n"
        with pytest.raises(BadRequestError, match="zz is not supported"):
            await client.translate("A cat.", "en", "zz")
        with pytest.raises(ForbiddenError, match="Suggestions are disabled"):
            await client.suggest("A cat.", "Um gato.", "en", "pt")
        server.decoder.gate.close()
        first = asyncio.create_task(client.translate(list("abcdefgh"), "en", "pt"))
        await held(server)
        with pytest.raises(RateLimitError, match="Slowdown"):
            await client.translate(list("abcdefgh"), "en", "pt")
        server.decoder.gate.open()
        await first


async def test_deep_translator() -> None:
    async with asking() as (server, _):
        client = LibreTranslator(source="en", target="pt", api_key="any", custom_url=f"{server.url}/")
        assert await apart(client.translate, "A cat.") == "A cat."


async def test_deepl() -> None:
    async with asking(door=door(one=["translate", "models"])) as (server, _):
        client = deepl.DeepLClient("one", server_url=server.url)
        texts = ["The cat is here.", "The dogs\nare there."]
        translated: Any = await apart(lambda: client.translate_text(texts, target_lang="PT-BR"))
        found, other = translated
        assert (found.text, found.detected_source_lang, found.billed_characters) == ("The cat is here.", "EN", 16)
        assert other.text == "The dogs\nare there."
        assert [one.code for one in await apart(client.get_target_languages)] == ["PT", "PT-BR"]
        usage = await apart(client.get_usage)
        assert usage.character.count == 35 and not usage.any_limit_reached
        assert [await apart(client.list_glossaries), await apart(client.list_multilingual_glossaries)] == [[], []]
        marked_up: Any = await apart(
            lambda: client.translate_text("<p><b>A cat.</b></p>", target_lang="PT-BR", tag_handling="html")
        )
        assert marked_up.text == "<p><b>A cat.</b></p>"
        with pytest.raises(deepl.DeepLException, match="'tag_handling' not supported"):
            await apart(lambda: client.translate_text("<b>A</b>", target_lang="PT-BR", tag_handling="xml"))
        with pytest.raises(deepl.AuthorizationException):
            await apart(deepl.DeepLClient("no", server_url=server.url).get_usage)


async def test_openai() -> None:
    import openai  # takes two seconds, which each process that collects tests would spend

    async with (
        asking(door=door(one=["encode", "models"])) as (server, _),
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="one", max_retries=0) as client,
    ):
        found = await client.embeddings.create(input=["A cat.", "A dog."], model="copy")
        plain = await client.embeddings.create(input=["A cat.", "A dog."], model="copy", encoding_format="float")
        coded, written = (np.array([one.embedding for one in of.data], np.float32) for of in (found, plain))
        np.testing.assert_array_equal(coded, written)
        assert [model.id async for model in client.models.list()] == ["copy"]
        with pytest.raises(openai.NotFoundError) as caught:
            await client.embeddings.create(input="A cat.", model="gpt")
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="arrays of tokens"):
            await client.embeddings.create(input=[1, 2, 3], model="copy")
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="no").embeddings.create(input="A cat.", model="copy")


async def test_mastodon() -> None:
    """app/lib/translation_service/libre_translate.rb: JSON, an array of HTML, whose language it may not know."""
    async with asking() as (_, client):
        languages = (await client.get("/languages")).json()
        assert {"code": "en", "targets": ["en", "pt", "pt-BR"]}.items() <= languages[0].items()
        body = {"q": ["<p>A cat.</p>"], "source": "en", "target": "pt", "format": "html", "api_key": None}
        assert (await client.post("/translate", json=body)).json() == {"translatedText": ["<p>A cat.</p>"]}
        texts = (await client.post("/translate", json=body | {"q": ["A cat.", "A dog."], "format": "text"})).json()
        assert texts == {"translatedText": ["A cat.", "A dog."]}
        pages = ["<p>The cat is here.</p>", "<p>Os gatos estão aqui.</p>"]
        found = (await client.post("/translate", json=body | {"q": pages, "source": "auto"})).json()
        assert found["translatedText"] == pages
        assert [found["detectedLanguage"][index]["language"] for index in range(2)] == ["en", "pt"]
    async with asking(quota=Quota(texts_per_s=0.001)) as (_, client):
        await client.post("/translate", json=body)
        assert (await client.post("/translate", json=body)).status_code == 429  # TooManyRequestsError
    async with asking(door=door(one=["translate"])) as (_, client):
        assert (await client.post("/translate", json=body | {"api_key": "no"})).status_code == 403


async def test_discourse() -> None:
    """discourse-translator, app/services/discourse_translator/provider/libre_translate.rb: forms, /detect first."""
    async with asking() as (_, client):
        detected = (await client.post("/detect", data={"q": "The cat is here."})).json()
        assert detected[0]["language"] == "en"
        assert {"en", "pt"} <= {one["code"] for one in (await client.get("/languages")).json()}
        form = b"q=%3Cp%3EThe+cat+is+here.%3C%2Fp%3E&source=en&target=pt&format=html&api_key"  # it has none
        kind = {"content-type": "application/x-www-form-urlencoded"}
        translated = (await client.post("/translate", content=form, headers=kind)).json()
        assert translated == {"translatedText": "<p>The cat is here.</p>"}


async def test_argostranslate() -> None:
    """argostranslate/apis.py: forms, also where there is nothing to say. tests/server/foreign runs it itself."""
    async with asking() as (_, client):
        asked = (await client.post("/languages", data={})).json()
        assert asked == (await client.get("/languages")).json() and asked[0]["code"] == "en"


async def test_weblate() -> None:
    """weblate/machinery/libretranslate.py: a form without a format, and a key that may be empty."""
    async with asking() as (_, client):
        assert [one["code"] for one in (await client.get("/languages")).json()] == ["en", "pt", "pt-BR"]
        form = {"q": "A cat.", "source": "en", "target": "pt", "api_key": ""}
        assert (await client.post("/translate", data=form)).json() == {"translatedText": "A cat."}


async def test_nothing_is_kept_of_who_left() -> None:
    """httpx in its own words: a client that gives up."""
    async with asking() as (server, client):
        server.decoder.gate.close()
        asked, patience = {"q": "A cat.", "source": "en", "target": "pt"}, httpx.Timeout(WAIT_S, read=0.2)
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/translate", json=asked, timeout=patience)
        server.decoder.gate.open()
        async with asyncio.timeout(WAIT_S):
            await server.calls.wait_until_idle()
