"""Working through lines: read ahead of the work and the work done at once, both bounded, results in order."""

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from io import FileIO
from typing import TypeVar

BLOCK_BYTES = 64 * 1024
MAX_LINE_BYTES = 1024 * 1024

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")


class LineError(ValueError):
    """A line that cannot be a text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input, its line end included or not."""

    number: int
    """From 1."""
    raw: bytes

    def text(self) -> str:
        """The text of the line. Raises LineError if it is too long, not UTF-8, or has a zero byte."""
        if len(self.raw) > MAX_LINE_BYTES:
            raise LineError(f"line is over {MAX_LINE_BYTES} bytes; put one sentence on each line")
        try:
            text = self.raw.decode()
        except UnicodeDecodeError as error:
            byte, at = self.raw[error.start], error.start + 1
            raise LineError(f"byte {at} (0x{byte:02x}) is not UTF-8; convert the text to UTF-8 first") from error
        if (at := self.raw.find(0)) >= 0:  # which is UTF-8, but every other byte of English in UTF-16
            raise LineError(f"byte {at + 1} (0x00) is in no text; if the file is UTF-16, convert it to UTF-8 first")
        return text.removesuffix("\r").removeprefix("\ufeff" if self.number == 1 else "")


async def read_lines(path: str) -> AsyncIterator[Line]:
    """The lines of a file, or of standard input for "-". Raises OSError.

    Memory stays bounded: of a line that is too long only so much is kept that `Line.text` refuses it.
    """
    number, rest = 0, b""
    file = await _in_daemon_thread(partial(_open, path))
    with file:
        while block := await _in_daemon_thread(partial(file.read, BLOCK_BYTES)):
            *lines, rest = (rest + block).split(b"\n")
            for raw in lines:
                number += 1
                yield Line(number, raw)
            rest = rest[: MAX_LINE_BYTES + 1]
    if rest:
        yield Line(number + 1, rest)


async def given_lines(texts: Iterable[bytes]) -> AsyncIterator[Line]:
    """The lines of texts that are there already: at least one of each."""
    raws = (raw for text in texts for raw in text.removesuffix(b"\n").split(b"\n"))
    for number, raw in enumerate(raws, 1):
        yield Line(number, raw)


async def in_order(items: AsyncIterable[I], work: Callable[[I], Awaitable[R]], concurrency: int) -> AsyncGenerator[R]:
    """Works on so many items at once and gives the results in the items' order, each as soon as it can be given.

    Closing it early cancels the work under way; use `contextlib.aclosing`.
    """
    started: asyncio.Queue[asyncio.Future[R] | None] = asyncio.Queue()
    slots = asyncio.Semaphore(concurrency)

    async def start() -> None:
        try:
            async for item in items:
                await slots.acquire()
                started.put_nowait(asyncio.ensure_future(work(item)))
        finally:
            started.put_nowait(None)

    starter = asyncio.create_task(start())
    try:
        while (task := await started.get()) is not None:
            yield await task
            slots.release()
        await starter
    finally:
        starter.cancel()
        _cancel_all(started)


def _cancel_all(tasks: asyncio.Queue[asyncio.Future[R] | None]) -> None:
    while not tasks.empty():
        if task := tasks.get_nowait():
            task.cancel()


def _open(path: str) -> FileIO:
    """Unbuffered, so that a read gives what is there instead of waiting for a full block."""
    return FileIO(sys.stdin.fileno(), closefd=False) if path == "-" else FileIO(path)


async def _in_daemon_thread(call: Callable[[], R]) -> R:
    """As `asyncio.to_thread`, but the process can end meanwhile: a read of a terminal may never return."""
    result: concurrent.futures.Future[R] = concurrent.futures.Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(result)
