"""server.versions.watched: folders of packages, and whoever reloads their models."""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from models.package.folder import MANIFEST
from server.catalog.reloading import Reloaded
from server.errors import ReloadUnderWay
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
