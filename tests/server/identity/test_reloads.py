"""server.identity.reloads: files that change are taken up, once they are whole; bad ones are not."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from prometheus_client import CollectorRegistry

from server.config import ConfigError, load_settings
from server.identity.opening import open_door
from server.identity.reloads import Reloads, Source
from server.identity.tls import open_tls
from server.telemetry.metrics.reload import ReloadMetrics
from tests.serving import eventually


@dataclass
class Read:
    """Two files, and what was read of them."""

    folder: Path
    used: list[str] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def load(self) -> None:
        text = "".join((self.folder / name).read_text() for name in "ab")
        if "bad" in text:
            raise ConfigError("it is bad")
        self.used.append(text)

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"dragoman_{name}", {"source": "pair", **labels}) or 0.0


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[tuple[Read, Reloads]]:
    for name in "ab":
        (folder / name).write_text(name)
    read = Read(folder)
    source = Source("pair", [folder / "a", folder / "b"], read.load)
    reloads = Reloads([source], ReloadMetrics(read.registry, ["pair"]), poll_s=0.01)
    task = asyncio.create_task(reloads.watch())
    yield read, reloads
    task.cancel()


async def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as (read, _):
        (tmp_path / "a").write_text("new ")
        await eventually(lambda: read.used == ["new b"])
        await eventually(lambda: read.metric("reloads_total", result="used") == 1)


async def test_links_are_followed_as_kubernetes_changes_them(tmp_path: Path) -> None:
    async with watching(tmp_path) as (read, _):
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "a").write_text("linked ")
        os.symlink(tmp_path / "data" / "a", tmp_path / "link")
        os.replace(tmp_path / "link", tmp_path / "a")
        await eventually(lambda: read.used == ["linked b"])


async def test_a_bad_file_keeps_what_was_in_use_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with watching(tmp_path) as (read, _):
        (tmp_path / "a").write_text("bad")
        await eventually(lambda: read.metric("reload_failed") == 1)
        (tmp_path / "a").write_text("good ")
        await eventually(lambda: read.used == ["good b"])
        await eventually(lambda: read.metric("reload_failed") == 0)
        assert [read.metric("reloads_total", result=result) for result in ("used", "refused")] == [1, 1]
    [told] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told.getMessage() == "pair is not taken up, and what was in use stays so: it is bad"


async def test_a_pipe_is_refused_and_later_files_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads it waits for somebody who writes, and nothing would be read any more."""
    async with watching(tmp_path) as (read, _):
        (tmp_path / "a").unlink()
        os.mkfifo(tmp_path / "a")
        with open(tmp_path / "a", "r+b", buffering=0):  # whoever reads it is let go behind this
            await eventually(lambda: read.metric("reload_failed") == 1)
        (tmp_path / "a").unlink()
        (tmp_path / "a").write_text("good ")
        await eventually(lambda: read.used == ["good b"])
    assert f"{tmp_path / 'a'} is a pipe; put a file in its place" in caplog.text


def _named(setting: str) -> list[str]:
    """Flags with this file among those that the setting needs."""
    if setting == "jwt_keys":
        return ["--jwt-keys=file", "--jwt-issuer=https://issuer.example", "--jwt-audience=dragoman"]
    if setting == "callers":
        return ["--callers=file"]
    others = {"tls_certificate": "gone", "tls_key": "gone", "tls_client_ca": "gone"} | {setting: "file"}
    return [f"--{name.replace('_', '-')}={file}" for name, file in others.items()]


@pytest.mark.parametrize("setting", ["callers", "jwt_keys", "tls_certificate", "tls_key", "tls_client_ca"])
def test_a_pipe_is_refused_at_the_start_too(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("file")
    settings = load_settings(_named(setting))
    with pytest.raises(ConfigError, match=r"^file is a pipe; put a file in its place$"):
        open_door(settings)
        open_tls(settings)


TOO_LONG = "a" * 300
"""A name that the system refuses, whoever asks: as it does a folder that the process may not look into."""


@pytest.mark.parametrize("setting", ["callers", "jwt_keys", "tls_certificate", "tls_key", "tls_client_ca"])
def test_what_may_not_be_looked_at_is_told_with_its_setting(setting: str, tmp_path: Path) -> None:
    pair = trustme.CA().issue_cert("localhost")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "certificate")
    pair.private_key_pem.write_to_path(tmp_path / "key")
    given = {"tls_certificate": tmp_path / "certificate", "tls_key": tmp_path / "key", setting: tmp_path / TOO_LONG}
    issuer = ["--jwt-issuer=https://issuer.example", "--jwt-audience=dragoman"] if setting == "jwt_keys" else []
    settings = load_settings([*(f"--{name.replace('_', '-')}={file}" for name, file in given.items()), *issuer])
    with pytest.raises(ConfigError) as refused:
        open_door(settings)
        open_tls(settings)
    assert str(refused.value).startswith(f"{setting} {tmp_path / TOO_LONG}")
    assert str(refused.value).endswith("File name too long")


async def test_what_may_not_be_looked_at_is_told_and_later_files_are_read(tmp_path: Path) -> None:
    """Or who is to be kept out would get in until the server is started anew."""
    async with watching(tmp_path) as (read, _):
        os.symlink(TOO_LONG, tmp_path / "link")
        os.replace(tmp_path / "link", tmp_path / "a")
        await eventually(lambda: read.metric("reload_failed") == 1)
        (tmp_path / "a").unlink()
        (tmp_path / "a").write_text("good ")
        await eventually(lambda: read.used == ["good b"])


async def test_who_may_read_a_file_is_a_change(tmp_path: Path) -> None:
    """A file that may not be read is mended with chmod or chown."""
    async with watching(tmp_path) as (read, _):
        (tmp_path / "a").chmod(0o600)
        await eventually(lambda: read.used == ["ab"])


async def test_all_are_read_when_asked_for(tmp_path: Path) -> None:
    async with watching(tmp_path) as (read, reloads):
        reloads.asked.set()
        await eventually(lambda: read.used == ["ab"])


async def test_one_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """A file server that is gone answers nobody."""
    (tmp_path / "a").write_text("a")
    hangs, used, free = asyncio.Event(), list[str](), threading.Event()
    loop = asyncio.get_running_loop()

    def hang() -> None:
        loop.call_soon_threadsafe(hangs.set)
        free.wait()

    sources = [Source("hangs", [tmp_path / "a"], hang), Source("good", [tmp_path / "a"], lambda: used.append("good"))]
    reloads = Reloads(sources, ReloadMetrics(CollectorRegistry(), ["hangs", "good"]), poll_s=0.01)
    task = asyncio.create_task(reloads.watch())
    try:
        (tmp_path / "a").write_text("new")
        await hangs.wait()
        await eventually(lambda: used == ["good"])
        reloads.asked.set()
        await eventually(lambda: used == ["good", "good"])
    finally:
        free.set()
        task.cancel()
