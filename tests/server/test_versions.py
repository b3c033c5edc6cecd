"""server.versions: new versions of a package are taken up under load, and bad ones are not."""

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from bench.process import free_port
from dragoman import AsyncClient, Client, FailedPrecondition, TextDelta
from dragoman.command.main import main
from models.package.folder import MANIFEST
from server.versions.rule import Comparison, Rule
from tests.server_process import WAIT_S, Metrics, ServerProcess, eventually, server_process

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
TEXTS = ["The cat sleeps.", "Good morning.", "I have two brothers.", "Where is the station?"]
MOST = 16
"""Tokens of an answer. A version that was damaged finds no end."""


class Folder:
    """A package folder, which is a link to one of several versions."""

    def __init__(self, place: Path) -> None:
        self.path, self._place, self._count = place / "served", place, 0
        self.version()

    def version(self, *without: str) -> Path:
        """Another version, with the same answers: its manifest is written otherwise. `without`: patterns of files."""
        self._count += 1
        folder = self._place / f"v{self._count}"
        shutil.copytree(ZOO, folder, ignore=shutil.ignore_patterns(*without))
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=self._count), encoding="utf-8")
        return self.use(folder)

    def use(self, folder: Path) -> Path:
        """From now on, at once."""
        link = self._place / "next"
        link.symlink_to(folder)
        os.replace(link, self.path)
        return folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@asynccontextmanager
async def load(client: AsyncClient) -> AsyncIterator[list[str]]:
    """Callers that go on until the block ends. Gives what they are told, which must be what each was told before."""
    alone = {text: (await client.translate(text, no_cache=True, max_new_tokens=MOST)).text for text in TEXTS}
    wrong, ending, answered = list[str](), False, 0

    async def call(text: str) -> None:
        nonlocal answered
        while not ending:
            if (await client.translate(text, no_cache=True, max_new_tokens=MOST)).text != alone[text]:
                wrong.append(text)
            answered += 1

    async with asyncio.TaskGroup() as callers:
        for text in TEXTS:
            callers.create_task(call(text))
        yield wrong
        ending = True
    assert answered > len(TEXTS)


async def test_versions_are_taken_up_under_load_and_no_call_fails(folder: Folder) -> None:
    with server_process(folder.path, "--no-watch-packages", "--max-rows", 8) as server:
        async with AsyncClient(server.target) as client, load(client) as wrong:
            for _ in range(3):
                before = (await client.models())[0].package_sha256
                folder.version()
                reloaded = await client.reload()
                assert reloaded.former_package_sha256 == before != reloaded.model.package_sha256
                assert reloaded.model == (await client.models())[0]
            again = await client.reload("en-pt")  # nothing is new
            assert again.former_package_sha256 == again.model.package_sha256
        assert not wrong
        metrics = server.metrics()
        assert metrics("dragoman_model_reloads_total", model="en-pt", result="promoted") == 3
        assert metrics("dragoman_rpc_requests_total", code="OK") == metrics("dragoman_rpc_requests_total")
        assert metrics("dragoman_finished_total") > len(TEXTS)


async def test_what_a_shadow_computes_counts_nowhere(folder: Folder) -> None:
    shadow = "--shadow-share", 1, "--shadow-contents", 8, "--shadow-slowdown", 1000
    with server_process(folder.path, "--no-watch-packages", "--max-rows", 8, *shadow) as server:
        async with AsyncClient(server.target) as client, load(client):
            folder.version()
            assert (await client.reload()).former_package_sha256
        assert server.metrics()("dragoman_shadow_contents_total", result="equal") >= 8
        assert server.metrics()("dragoman_cancellations_total") == 0
        eventually(lambda: all_rows_are_accounted_for(server.metrics()))


def all_rows_are_accounted_for(metrics: Metrics) -> bool:
    """They are in an answer or wasted. Known answers are asked for, too: it may take until those are there."""
    useful, wasted = metrics("dragoman_target_tokens_total"), metrics("dragoman_rows_wasted_total")
    return metrics("dragoman_rows_computed_total") == useful + wasted


def test_a_folder_that_changes_is_taken_up_and_one_that_is_broken_is_not(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    with server_process(folder.path, "--max-rows", 8) as server, Client(server.target) as client:
        first = client.models()[0].package_sha256
        good = folder.version()
        eventually(lambda: client.models()[0].package_sha256 != first)
        second, text = client.models()[0].package_sha256, client.translate("The cat sleeps.").text
        folder.version("tokenizer.json", "*.spm")
        eventually(lambda: server.metrics()("dragoman_model_reload_refused", model="en-pt") == 1)
        assert main(["reload", "--target", server.target]) == 1
        assert "is not taken up, and the one before goes on" in capsys.readouterr().err
        assert client.models()[0].package_sha256 == second
        assert client.translate("The cat sleeps.", no_cache=True).text == text
        folder.use(good)  # put back, it is what is served
        eventually(lambda: server.metrics()("dragoman_model_reload_refused", model="en-pt") == 0)
        assert server.metrics()("dragoman_model_reloads_total", model="en-pt", result="promoted") == 1
        folder.version()
        eventually(lambda: client.models()[0].package_sha256 != second)
        assert main(["reload", "--model", "en-pt", "--target", server.target]) == 0


def test_other_apis_have_the_languages_of_the_version_that_serves(folder: Folder) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with server_process(folder.path, "--no-watch-packages", "--max-rows", 8, "--http-port", port) as server:
        asked = {"q": "The cat sleeps.", "source": "auto", "target": "fr"}
        assert httpx.post(f"{url}/translate", json=asked, timeout=WAIT_S).json() == {"error": "fr is not supported"}
        manifest = folder.version() / MANIFEST
        content = json.loads(manifest.read_text(encoding="utf-8"))
        manifest.write_text(json.dumps({**content, "target_languages": ["fr"]}), encoding="utf-8")
        with Client(server.target) as client:
            assert client.reload().changed
        told = httpx.post(f"{url}/translate", json=asked, timeout=WAIT_S).json()
        assert (told["translatedText"], told["detectedLanguage"]["language"]) == ("O gato dorme.", "en")
        listed = httpx.get(f"{url}/languages", timeout=WAIT_S).json()
        assert {one["code"]: one["targets"] for one in listed} == {"en": ["en", "fr"], "fr": ["fr"]}
        listed = httpx.get(f"{url}/v2/languages", params={"type": "target"}, timeout=WAIT_S).json()
        assert [one["language"] for one in listed] == ["FR"]
        ranked = httpx.post(f"{url}/detect", json={"q": "Le chat dort sur la table."}, timeout=WAIT_S).json()
        assert [one["language"] for one in ranked] == ["fr", "en"]


def test_two_versions_that_have_no_room_beside_each_other_are_told_so(folder: Folder) -> None:
    with (
        server_process(folder.path, "--no-watch-packages", "--max-rows", 8, "--memory-mb", 1200) as server,
        Client(server.target) as client,
    ):
        folder.version()
        with pytest.raises(FailedPrecondition, match=r"may take \d+ MB .* 1200 MB may be used") as refused:
            client.reload()
        assert refused.value.reason == "CANDIDATE_REFUSED"


SHADOW = ("--no-watch-packages", "--max-rows", 8, "--canary-interval-s", 0, "--shadow-share", 1)


async def test_an_equal_candidate_is_promoted_by_its_shadow_and_a_damaged_one_is_not(folder: Folder) -> None:
    with server_process(folder.path, *SHADOW, "--shadow-contents", 6, "--shadow-slowdown", 1000) as server:
        async with AsyncClient(server.target) as client, load(client) as wrong:
            folder.version()
            reloaded = await client.reload()
            assert reloaded.changed and reloaded.shadow is not None
            assert reloaded.shadow.equal == reloaded.shadow.compared >= 6
            assert reloaded.shadow.score_difference < 1e-4
            damage(folder.version())
            with pytest.raises(FailedPrecondition, match=r"texts are different|scores of one text differ"):
                await client.reload()
            assert (await client.models())[0] == reloaded.model
        assert not wrong
        metrics = server.metrics()
        assert metrics("dragoman_shadow_contents_total", result="equal") >= 6
        assert metrics("dragoman_model_reload_refused", model="en-pt") == 1


LONG = 500
"""Tokens of a stream that is under way when its version is replaced."""
ANYTHING = ("--shadow-equal-texts", 0, "--shadow-score-difference", 1000, "--shadow-slowdown", 1000)


async def test_a_stream_ends_on_the_version_that_it_began_with(folder: Folder) -> None:
    """Its shadow's last contents say when the candidate is promoted: while the stream is known to be under way."""
    damage(folder.path.resolve())  # which finds no end
    with server_process(folder.path, *SHADOW, *ANYTHING, "--shadow-contents", 2 * len(TEXTS)) as server:
        async with AsyncClient(server.target) as client:
            former = await client.translate(TEXTS[0], no_cache=True, max_new_tokens=LONG)
            folder.version()
            reload = asyncio.create_task(client.reload())
            await shadowed(client, server)
            streamed = asyncio.create_task(stream(client, began := asyncio.Event()))
            await began.wait()
            await client.translate(2 * TEXTS, no_cache=True, max_new_tokens=1)
            assert (await reload).changed and not streamed.done()
            assert (await client.translate(TEXTS[0], no_cache=True)).text == "O gato dorme."
            assert await streamed == former.text != "O gato dorme."


async def shadowed(client: AsyncClient, server: ServerProcess) -> None:
    """Returns when a candidate has answered a live call, too."""
    while not server.metrics()("dragoman_shadow_contents_total"):
        await client.translate(TEXTS[0], no_cache=True, max_new_tokens=1)
        await asyncio.sleep(0.2)


async def stream(client: AsyncClient, began: asyncio.Event) -> str:
    """A text that was streamed to its end."""
    text = ""
    async for event in client.stream_translate(TEXTS[0], no_cache=True, max_new_tokens=LONG):
        if isinstance(event, TextDelta):
            text += event.text
            began.set()
    return text


def damage(package: Path) -> None:
    """Weights that load and decode, and are wrong: the numbers of one matrix stand in the opposite order.

    The package has no probes, which would tell at once.
    """
    weights = package / "model.safetensors"
    content = bytearray(weights.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    begin, end = (start + at for at in header["model.decoder.layers.1.encoder_attn.v_proj.weight"]["data_offsets"])
    content[begin:end] = np.frombuffer(content[begin:end], np.uint16)[::-1].tobytes()
    weights.write_bytes(content)
    manifest = json.loads((package / MANIFEST).read_text(encoding="utf-8"))
    manifest["files"][weights.name]["sha256"] = hashlib.sha256(content).hexdigest()
    manifest["graphs"]["probes"] = []
    (package / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


RULE = Rule(share=1.0, contents=10, equal_texts=0.8, score_difference=0.1, slowdown=1.5, timeout_s=1.0)


def test_the_rule_is_kept_to_the_letter() -> None:
    fine = Comparison()
    for _ in range(2):
        fine.add(equal=False, score_difference=9.0, candidate_s=1.0, served_s=1.0)
    for _ in range(8):
        fine.add(equal=True, score_difference=0.1, candidate_s=1.6, served_s=1.0)
    assert (fine.compared, fine.equal, fine.score_difference) == (10, 8, 0.1)
    assert fine.slowdown == pytest.approx(1.48)
    assert fine.objection(RULE) is None
    fine.add(equal=True, score_difference=0.0, candidate_s=3.0, served_s=1.0)
    assert "1.62 x the time; 1.5 x it may" in (fine.objection(RULE) or "")
    wrong, apart = Comparison(), Comparison()
    for _ in range(3):
        wrong.add(equal=False, score_difference=0.0, candidate_s=1.0, served_s=1.0)
    assert "3 of 3 texts are different" in (wrong.objection(RULE) or "")  # before all are compared
    apart.add(equal=True, score_difference=0.2, candidate_s=1.0, served_s=1.0)
    assert "differ by 0.2; by 0.1 they may" in (apart.objection(RULE) or "")
