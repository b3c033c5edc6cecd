"""Several models in one server."""

import asyncio
import json
import logging
import re
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import grpc
import pytest

from dragoman import (
    AsyncClient,
    Client,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    TranslatedDocument,
)
from dragoman.local import Translator
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from models.package.folder import MANIFEST, Package
from server.config import Settings
from tests.checkpoints import flores
from tests.fakes import CopyDecoder
from tests.server_process import WAIT_S, server_process
from tests.serving import eventually, refused, serve_here

if TYPE_CHECKING:
    from dragoman.v1.translation_pb2_grpc import TranslationServiceAsyncStub

ZOO = Path(__file__).parents[2] / "models" / "zoo"
SENTENCES = [english for english, _ in flores() if len(english) < 50][:8]
"""Short enough for the smallest of the models."""


def test_two_real_models_are_found_by_name_and_by_language() -> None:
    with (
        server_process(ZOO / "en-pt", "--package", ZOO / "pt-en", "--pivot") as server,
        Client(server.target) as client,
    ):
        models = client.models()
        assert [model.name for model in models] == ["en-pt", "pt-en"]
        for model in models:
            assert (model.state, model.workers) == ("serving", 2)
            assert model.rows > 0 and model.memory_bytes > 50_000_000
        there, back = ["The cat sleeps."], ["O gato dorme."]
        [named] = client.translate(there, model="en-pt")
        [routed] = client.translate(there, source_language="en", target_language="pt")
        [default] = client.translate(there)
        assert named.text == routed.text == default.text != there[0]
        [named] = client.translate(back, model="pt-en")
        [routed] = client.translate(back, source_language="pt-BR", target_language="en")
        assert named.text == routed.text != back[0]
        with pytest.raises(NotFound, match='no model "de-en"; the server has en-pt, pt-en'):
            client.translate(there, model="de-en")
        with pytest.raises(InvalidArgument, match='source_language_code is "de"; the server has en, pt'):
            client.translate(there, source_language="de", target_language="en")
        # There is no third language here, but a way from a language to itself.
        by_way = client.translate(there[0], source_language="en", target_language="en", pivot=True, no_cache=True)
        [back_again] = client.translate([default.text], model="pt-en", no_cache=True)
        assert (by_way.text, by_way.tokens) == (back_again.text, back_again.tokens)
        first, second = by_way.legs
        assert (first.model, first.source_language, first.target_language) == ("en-pt", "en", "pt")
        assert (second.model, second.source_language, second.target_language) == ("pt-en", "pt", "en")
        assert (first.source_tokens, second.source_tokens) == (default.source_tokens, back_again.source_tokens)
        assert by_way.timings.steps == first.timings.steps + second.timings.steps
        assert by_way.timings.decode_s == pytest.approx(first.timings.decode_s + second.timings.decode_s)
        assert by_way.score == 0.0 > default.score
        assert by_way.hypotheses[0].log_prob == 0.0 > default.hypotheses[0].log_prob
        assert client.translate(there[0], source_language="en", target_language="pt", pivot=True).legs == ()
        with pytest.raises(InvalidArgument, match='is "en"; from "en" the server has pt'):
            client.translate(there[0], source_language="en", target_language="en")
        with pytest.raises(InvalidArgument, match='is "de"; from "en" the server has pt'):
            client.translate(there[0], source_language="en", target_language="de", pivot=True)
        metrics = server.metrics()
        for name in ("en-pt", "pt-en"):
            assert metrics("dragoman_finished_total", model=name) > 0
            assert metrics("dragoman_model_serving", model=name) == 1
            assert metrics("dragoman_model_info", model=name) == 1


class Way(TypedDict):
    source_language: str
    target_language: str
    pivot: bool


BACK = Way(source_language="en", target_language="en", pivot=True)
"""From a language to itself: there is no third one here."""
PAGE = ["The red car is here.", "It rains.", "My brother reads a book."]


def test_whole_texts_and_documents_go_by_way_of_a_third_language() -> None:
    with Translator([ZOO / "en-pt-int8", ZOO / "pt-en"], workers=1) as translator:
        there = translator.translate(PAGE, model="en-pt-int8", no_cache=True)
        back = translator.translate([one.text for one in there], model="pt-en", no_cache=True)
        [*_, done] = translator.translate_document("\n".join(PAGE).encode(), format="txt", **BACK)
        assert isinstance(done, TranslatedDocument)
        assert (done.document.decode().split("\n"), done.model) == ([one.text for one in back], "pt-en")
        page = translator.translate(" ".join(PAGE), segmentation="sentences", no_cache=True, **BACK)
        assert page.text == " ".join(one.text for one in back)
        for leg, of_sentences in zip(page.legs, (there, back), strict=True):
            assert leg.source_tokens == sum(one.source_tokens for one in of_sentences)
        assert [leg.model for leg in page.legs] == ["en-pt-int8", "pt-en"]
        assert page.timings.steps == sum(leg.timings.steps for leg in page.legs)
        with pytest.raises(InvalidArgument, match="or send no with_alignment, and no tags or formats inside of sent"):
            translator.translate("The <b>red car</b> is here.", format="html", **BACK)


def test_guards_of_both_ways_are_told() -> None:
    with Translator([ZOO / "en-pt-int8", ZOO / "pt-en"], workers=1) as translator:
        [first] = translator.translate(["ha " * 60], model="en-pt-int8")
        by_way = translator.translate("ha " * 60, retry_on_guard=True, **BACK)
        [second] = translator.translate([first.text], model="pt-en", retry_on_guard=True)
        assert first.guards and not second.guards
        assert by_way.guards == first.guards


def test_what_is_too_long_between_both_is_not_taken_for_the_content() -> None:
    flags = "--package", ZOO / "pt-en", "--pivot", "--max-source-tokens", 8
    with server_process(ZOO / "en-pt-int8", *flags) as server, Client(server.target) as client:
        first = client.translate("Please help yourself.", source_language="en", target_language="pt")
        assert first.source_tokens <= 8 < first.tokens
        told = rf"contents\[0\] in pt has {first.tokens} tokens; the model takes 8"
        with pytest.raises(InvalidArgument, match=told) as caught:
            client.translate("Please help yourself.", **BACK)
        assert [violation.field for violation in caught.value.violations] == ["contents[0]"]


def test_what_the_second_model_refuses_and_what_a_caller_owes_is_told_before_the_first_works() -> None:
    flags = "--package", ZOO / "pt-en", "--pivot", "--quota-texts-per-s", 0.001
    with server_process(ZOO / "en-pt-int8", *flags) as server, Client(server.target) as client:
        with pytest.raises(InvalidArgument, match="num_beams is 17"):
            client.translate(PAGE, num_beams=17, **BACK)
        with pytest.raises(InvalidArgument, match='prompt is "formal"'):
            client.translate(PAGE, prompt="formal", **BACK)
        assert server.metrics()("dragoman_caller_texts_total") == 0
        # With the first translation alone a caller owes more than leaves room for the second.
        assert len(client.translate(PAGE * 3, **BACK)) == 9
        assert server.metrics()("dragoman_caller_texts_total") == 18
        with pytest.raises(ResourceExhausted, match="asks for 3, and 0 are left"):
            client.translate(PAGE, **BACK)


Answer = tuple[object, ...]


def ask(translator: Translator, model: str, index: int) -> Answer:
    """A call of one of three kinds, and all that it gives but how long it took."""
    text, target = SENTENCES[index % len(SENTENCES)], translator.model(model).target_languages[0]
    if index % 3 == 2:
        return (translator.encode(text, model=model, poolings=["mean", "max"]).values,)
    found = translator.translate(
        text, model=model, target_language=target, num_beams=1 + 3 * (index % 3), max_new_tokens=24, with_tokens=True
    )
    return tuple((one.text, one.score, one.tokens) for one in found.hypotheses)


@pytest.mark.parametrize("count", [2, 5])
def test_under_mixed_load_each_answers_as_it_does_alone(
    count: int, tiny_package: Package, many_package: Package
) -> None:
    folders = [ZOO / "en-pt", tiny_package.folder, ZOO / "en-pt-int8", ZOO / "pt-en", many_package.folder][:count]
    asked = [(Package.open(folder).manifest.name, index) for index in range(12) for folder in folders]
    alone = dict[tuple[str, int], Answer]()
    for folder in folders:
        with Translator(folder, workers=1) as translator:
            own = Package.open(folder).manifest.name
            alone |= {(name, index): ask(translator, name, index) for name, index in asked if name == own}
    with Translator(folders, workers=2) as together, ThreadPoolExecutor(len(asked)) as callers:
        found = callers.map(lambda one: ask(together, *one), asked)
        assert dict(zip(asked, found, strict=True)) == alone
    assert len(set(alone.values())) > 8 * count, "models that say the same show little"


@asynccontextmanager
async def two_copying(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[tuple[str, AsyncClient, list[CopyDecoder], "asyncio.Task[int]"]]:
    """A server of the models a and b, whose decoders copy. The first failure of one is its last."""
    caplog.set_level(logging.INFO)
    decoders = [CopyDecoder(), CopyDecoder()]
    waiting = iter(decoders)
    monkeypatch.setattr("engine.loading.load.CpuDecoder", lambda *arguments: next(waiting))
    for name in ("a", "b"):
        shutil.copytree(package.folder, tmp_path / name)
        manifest = json.loads((tmp_path / name / MANIFEST).read_text(encoding="utf-8"))
        (tmp_path / name / MANIFEST).write_text(json.dumps({**manifest, "name": name}), encoding="utf-8")
    settings = Settings(
        package=(tmp_path,), workers=1, port=0, metrics_port=0, http=False, kernels="off", engine_restarts=0, cache_mb=0
    )
    serving = asyncio.create_task(serve_here(settings))
    await eventually(lambda: "serving b" in caplog.text or serving.done())
    port = re.findall(r"serving b on 127\.0\.0\.1:(\d+)", caplog.text)[0]
    target = f"127.0.0.1:{port}"
    async with AsyncClient(target) as client:
        yield target, client, decoders, serving


async def test_one_that_fails_for_good_leaves_the_other(
    tiny_package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        two_copying(tiny_package, tmp_path, monkeypatch, caplog) as (target, client, [first, second], serving),
        grpc.aio.insecure_channel(target) as channel,  # by which nothing is tried again
    ):
        translations: TranslationServiceAsyncStub = TranslationServiceStub(channel)
        first.step_error = RuntimeError("bad kernel")
        with pytest.raises(Internal, match="engine failed"):
            await client.translate("a", model="a")
        for _ in range(3):
            told = await refused(translations.Translate(TranslateRequest(contents=["a"], model="a")))
            assert (told.code, told.info.reason) == (grpc.StatusCode.UNAVAILABLE, "ENGINE_STOPPED")
            assert "the engine has failed too often" in told.message
            await client.translate("a", model="b")
        states = [model.state for model in await client.models()]
        assert states == ["stopped", "serving"]
        assert (await client.health()).name == "SERVING"
        assert "the engines of a have failed too often: it is served no more" in caplog.text
        assert not serving.done()
        second.step_error = RuntimeError("bad kernel")
        with pytest.raises(Internal, match="engine failed"):
            await client.translate("a", model="b")
        async with asyncio.timeout(WAIT_S):
            assert await serving == 1
