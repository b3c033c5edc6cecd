"""Files that are read again when they change, or when the process gets SIGHUP. A bad new one leaves the old in use."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from server.config import ConfigError
from server.telemetry.metrics.reload import ReloadMetrics

log = logging.getLogger(__name__)

POLL_S = 1.0
"""How often files are looked at. A change is taken up once nothing has changed since the look before: certificate and
key, say, are written one after the other."""

Stamp = tuple[int, ...] | None
Look = tuple[Stamp, ...]

EVERY_S = 300.0
"""How often what has no file is read again."""


@dataclass(frozen=True)
class Source:
    """Files that belong together."""

    name: str
    files: Sequence[Path]
    load: Callable[[], None]
    """Reads them and puts them to use. Runs on another thread than the event loop's. Raises ConfigError."""

    def look(self) -> Look:
        """Another value when one of them has changed, or without any, when it is time again.

        Follows links, which Kubernetes changes.
        """
        return tuple(map(stamp, self.files)) or ((int(time.monotonic() / EVERY_S),),)

    def read(self) -> None:
        """Raises ConfigError. A pipe among the files is not read: nobody may ever write to it."""
        for file in self.files:
            with suppress(OSError):  # of which whoever reads it tells
                if file.is_fifo():
                    raise ConfigError(f"{file} is a pipe; put a file in its place")
        self.load()


class Reloads:
    """Watches all of them."""

    def __init__(self, sources: Iterable[Source], metrics: ReloadMetrics, poll_s: float = POLL_S) -> None:
        self.asked = asyncio.Event()
        """Set it to have all read now."""
        self._sources, self._metrics, self._poll_s = tuple(sources), metrics, poll_s
        self._used = {source.name: source.look() for source in self._sources}
        self._seen = dict(self._used)

    async def watch(self) -> None:
        """Never returns. Each is watched for itself: one that hangs, as on a file server, holds up no other."""
        asked = {source.name: asyncio.Event() for source in self._sources}
        async with asyncio.TaskGroup() as tasks:
            for source in self._sources:
                tasks.create_task(self._watch(source, asked[source.name]))
            while True:
                await self.asked.wait()
                self.asked.clear()
                for event in asked.values():
                    event.set()

    async def _watch(self, source: Source, asked: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await asked.wait()
            anyhow = asked.is_set()
            asked.clear()
            look = await asyncio.to_thread(source.look)
            settled = look == self._seen[source.name]
            self._seen[source.name] = look
            if anyhow or (settled and look != self._used[source.name]):
                self._used[source.name] = look
                await self._load(source)

    async def _load(self, source: Source) -> None:
        try:
            await asyncio.to_thread(source.read)
        except ConfigError as error:
            log.error("%s is not taken up, and what was in use stays so: %s", source.name, error)
            self._metrics.failed(source.name)
        except Exception:  # or nothing would be read again, and who is to be kept out would still get in
            log.exception("%s is not taken up, and what was in use stays so", source.name)
            self._metrics.failed(source.name)
        else:
            log.info("%s is read again", source.name)
            self._metrics.loaded(source.name)


def stamp(file: Path) -> Stamp:
    """Another one when a file has changed, or who may read it. None: it is not there, or nobody may look."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size, stat.st_mode, stat.st_uid, stat.st_gid
