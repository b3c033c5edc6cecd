"""Package folders that are looked at: one with another manifest is taken up."""

import asyncio
import logging
from pathlib import Path

from models.package.folder import MANIFEST
from server.catalog.reloading import Reload
from server.errors import CandidateRefused, ReloadUnderWay
from server.identity.reloads import POLL_S, Look, stamp
from server.loaded import LoadedModels

log = logging.getLogger(__name__)


async def watch_packages(loaded: LoadedModels, reload: Reload, poll_s: float = POLL_S) -> None:
    """Never returns. Each is watched for itself: a folder that hangs, as on a file server, holds up no other."""
    async with asyncio.TaskGroup() as tasks:
        for one in loaded:
            folder = one.package.package.folder
            tasks.create_task(_watch(one.model.name, folder, _look(folder), reload, poll_s))


async def _watch(name: str, folder: Path, used: Look, reload: Reload, poll_s: float) -> None:
    """A change is taken up once nothing has changed since the look before, and tried once.

    One that is refused is tried again when any file has changed: it may be that only some of them had been there.

    used: how it was when it was loaded
    """
    seen, refused = used, False
    while True:
        await asyncio.sleep(poll_s)
        look = await asyncio.to_thread(_look, folder)
        settled = look == seen
        seen = look
        if settled and (look != used if refused else look[0] != used[0]):
            log.info("the package folder of %s has changed", name)
            try:
                await reload(name)
                refused = False
            except ReloadUnderWay:  # it is tried again
                continue
            except CandidateRefused:  # the log has it already
                refused = True
            used = look


def _look(folder: Path) -> Look:
    """Of its manifest, and then of all its files."""
    try:
        files = sorted(folder.iterdir())
    except OSError:
        files = []
    return tuple(map(stamp, [folder / MANIFEST, *files]))
