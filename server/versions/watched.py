"""Package folders that are looked at: one with another manifest is taken up."""

import asyncio
import logging
from contextlib import suppress

from models.package.folder import MANIFEST
from server.catalog.reloading import Reload
from server.errors import CandidateRefused, ReloadUnderWay
from server.identity.reloads import POLL_S, Source
from server.loaded import LoadedModels

log = logging.getLogger(__name__)


async def watch_packages(loaded: LoadedModels, reload: Reload, poll_s: float = POLL_S) -> None:
    """Never returns. A change is taken up once nothing has changed since the look before, and tried once."""
    sources = {
        one.model.name: Source(one.model.name, [one.package.package.folder / MANIFEST], lambda: None) for one in loaded
    }
    used = {name: source.look() for name, source in sources.items()}
    seen = dict(used)
    while True:
        await asyncio.sleep(poll_s)
        for name, source in sources.items():
            look = await asyncio.to_thread(source.look)
            settled = look == seen[name]
            seen[name] = look
            if settled and look != used[name]:
                log.info("the package folder of %s has changed", name)
                with suppress(ReloadUnderWay):  # then it is tried again
                    with suppress(CandidateRefused):  # the log has it already
                        await reload(name)
                    used[name] = look
