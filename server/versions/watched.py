"""Package folders that are looked at: one with another manifest is taken up."""

import asyncio
import logging
from contextlib import suppress

from models.package.folder import MANIFEST
from server.catalog.reloading import Reload
from server.errors import CandidateRefused, ReloadUnderWay
from server.identity.reloads import POLL_S, Look, Source
from server.loaded import LoadedModels

log = logging.getLogger(__name__)


async def watch_packages(loaded: LoadedModels, reload: Reload, poll_s: float = POLL_S) -> None:
    """Never returns. Each is watched for itself: a folder that hangs, as on a file server, holds up no other."""
    async with asyncio.TaskGroup() as tasks:
        for one in loaded:
            source = Source(one.model.name, [one.package.package.folder / MANIFEST], lambda: None)
            tasks.create_task(_watch(source, source.look(), reload, poll_s))


async def _watch(source: Source, used: Look, reload: Reload, poll_s: float) -> None:
    """A change is taken up once nothing has changed since the look before, and tried once.

    used: how it was when it was loaded
    """
    seen = used
    while True:
        await asyncio.sleep(poll_s)
        look = await asyncio.to_thread(source.look)
        settled = look == seen
        seen = look
        if settled and look != used:
            log.info("the package folder of %s has changed", source.name)
            with suppress(ReloadUnderWay):  # then it is tried again
                with suppress(CandidateRefused):  # the log has it already
                    await reload(source.name)
                used = look
