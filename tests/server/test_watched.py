"""server.versions.watched: folders of packages, and whoever reloads their models."""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from models.package.folder import MANIFEST
from server.catalog.reloading import Reloaded
from server.errors import CandidateRefused, ReloadUnderWay
from server.versions.watched import watch_packages
from tests.serving import eventually

POLL_S = 0.01


def served(folder: Path, *names: str) -> Any:
    """Models with a folder each, whose manifest is all that is looked at."""
    for name in names:
        (folder / name).mkdir()
        (folder / name / MANIFEST).write_text("one")
    return [
        SimpleNamespace(model=SimpleNamespace(name=name), package=SimpleNamespace(package=SimpleNamespace(folder=at)))
        for name, at in ((name, folder / name) for name in names)
    ]


def put(file: Path, text: str) -> None:
    """At once: nobody sees it half written."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(file)


async def test_one_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    asked = list[str]()

    async def reload(name: str) -> Reloaded:
        asked.append(name)
        if name == "hangs":
            await asyncio.Event().wait()
        elif asked.count(name) == 1:
            raise ReloadUnderWay(name)
        return None  # type: ignore[return-value]

    watching = asyncio.create_task(watch_packages(served(tmp_path, "hangs", "good", "same"), reload, POLL_S))
    await asyncio.sleep(2 * POLL_S)
    for name in ("hangs", "good"):
        (tmp_path / name / MANIFEST).write_text("another")
    try:
        await eventually(lambda: asked.count("good") == 2 and "hangs" in asked)
        await asyncio.sleep(5 * POLL_S)
        assert sorted(asked) == ["good", "good", "hangs"], "one is tried until it is not too soon, and then no more"
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_a_package_that_was_half_copied_is_tried_again_when_the_rest_is_there(tmp_path: Path) -> None:
    """Somebody copies a folder over that which is served, whose manifest comes before the weights."""
    asked = list[bool]()
    models = served(tmp_path, "slow")
    weights = tmp_path / "slow" / "weights.bin"
    weights.write_text("one")

    async def reload(name: str) -> Reloaded:
        asked.append(whole := weights.read_text() == "another")
        if not whole:
            raise CandidateRefused(name, "weights.bin was changed")
        return None  # type: ignore[return-value]

    watching = asyncio.create_task(watch_packages(models, reload, POLL_S))
    await asyncio.sleep(2 * POLL_S)
    put(tmp_path / "slow" / MANIFEST, "another")
    try:
        await eventually(lambda: asked == [False])
        await asyncio.sleep(5 * POLL_S)
        assert asked == [False], "nothing has changed since"
        put(weights, "another")
        await eventually(lambda: asked == [False, True])
        put(weights, "of nobody")
        await asyncio.sleep(5 * POLL_S)
        assert asked == [False, True], "the manifest is that which is served"
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
