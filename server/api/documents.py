"""Documents: read on a thread of their own, translated a part at a time, and written again."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dragoman.v1 import translation_pb2
from models.decoding import Options
from server.api.streams import in_order
from server.errors import OptionOutOfRange, OptionsConflict, Overloaded, QuotaExceeded
from server.telemetry.calls import current_call
from server.text.documents.document import Document, Languages, Limits, put_together, windows
from server.text.documents.formats import check_format, read_document, unpacked_bytes
from server.text.parts import Block, Part
from server.text.protected import Term
from server.text.texts import Ask, Texts
from server.traffic.held import Held
from server.translation.answer import Translation

T = TypeVar("T")

FORMATS = {
    number: name.removeprefix("DOCUMENT_FORMAT_").lower()
    for name, number in translation_pb2.DocumentFormat.items()
    if number != translation_pb2.DOCUMENT_FORMAT_UNSPECIFIED
}
"""The name of each format of the API."""
WINDOW_CHARACTERS = 4096
"""What is translated at a time: some fifty sentences."""
AHEAD = 1
"""Windows more that are worked on meanwhile, so that no batch runs empty at the end of one."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a document is to become."""

    format: str
    data: bytes
    languages: Languages
    texts: Texts
    glossary: tuple[Term, ...]
    options: Options
    model: str
    """That translates last."""


class Documents:
    """Those of a server, which share their bounds. Used on one event loop."""

    def __init__(self, limits: Limits, held: Held) -> None:
        """held: what all of them take, unpacked."""
        self._limits, self._held = limits, held
        self.most_bytes = limits.bytes
        """Of all of them, unpacked."""
        self._thread = ThreadPoolExecutor(1, "documents")
        """One: a document that is hard to read keeps other documents waiting, and nobody else."""

    async def translate(self, task: Task) -> AsyncGenerator[translation_pb2.TranslateDocumentResponse]:
        """Tells how far it is, then gives the document. Raises ServerError."""
        current_call().bulk = True
        document = await self._read(task.format, task.data, task.languages)
        written, done, tokens, total = list[str](), 0, 0, document.texts
        yield _progress(0, total)
        async with aclosing(in_order(_each(document), partial(_translated, task), AHEAD)) as answers:
            async for answer in answers:
                written += answer.written
                done += answer.texts
                tokens += answer.source_tokens
                if answer.texts:
                    yield _progress(done, total)
        data = await self._on_thread(partial(put_together, document, written))
        result = translation_pb2.TranslatedDocument(document=data, texts=done, source_tokens=tokens, model=task.model)
        yield translation_pb2.TranslateDocumentResponse(document=result)

    async def first_texts(self, name: str, data: bytes, characters: int) -> str:
        """About so many characters of those that it begins with, for whoever must know their language first.

        name: of the format. Raises ServerError.
        """
        document = await self._read(name, data, Languages("", ""))
        first = next(windows(document, characters), [])
        return " ".join(part.text for part in first if isinstance(part, Block))

    async def _read(self, name: str, data: bytes, languages: Languages) -> Document:
        check_format(name)
        size = await self._on_thread(partial(unpacked_bytes, name, data, self._limits))
        self._held.begin(size, current_call().caller)
        return await self._on_thread(partial(read_document, name, data, self._limits, languages))

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


@dataclass(frozen=True, slots=True)
class _Translated:
    """A window."""

    written: Sequence[str]
    """Every part."""
    texts: int
    source_tokens: int


def format_of(request: translation_pb2.TranslateDocumentRequest) -> str:
    """Its name. Raises OptionOutOfRange."""
    if request.format not in FORMATS:
        raise OptionOutOfRange("format", request.format, min(FORMATS), max(FORMATS), ": see DocumentFormat")
    return FORMATS[request.format]


def check_count(options: Options) -> None:
    """Raises OptionsConflict: a document has one translation."""
    if (count := options.get("num_return_sequences", 1)) != 1:
        raise OptionsConflict("num_return_sequences", count, "the call", "a document", "leave it out")


async def _each(document: Document) -> AsyncIterator[list[Part]]:
    for window in windows(document, WINDOW_CHARACTERS):
        yield window


async def _translated(task: Task, window: list[Part]) -> _Translated:
    written, tokens = await task.texts.translate_parts(window, task.glossary, task.options)
    return _Translated(written, sum(isinstance(part, Block) for part in window), tokens)


def patient(ask: Ask) -> Ask:
    """The same for the texts of a document: once it is begun, it waits for its turn as long as its caller does.

    Where that would be too long, it is told what it would wait for.
    """
    begun = False

    async def ask_again(contents: Sequence[str], options: Options) -> list[Translation]:
        nonlocal begun
        first, begun = not begun, True
        while True:
            try:
                return await ask(contents, options)
            except (Overloaded, QuotaExceeded) as error:
                wait_s = error.retry_after_s
                if first or wait_s is None or wait_s > _left_s():
                    raise
                await asyncio.sleep(wait_s)

    return ask_again


def _left_s() -> float:
    """How long the caller still waits."""
    deadline = current_call().deadline
    return math.inf if deadline is None else deadline - time.perf_counter()


def _progress(texts: int, total: int) -> translation_pb2.TranslateDocumentResponse:
    progress = translation_pb2.DocumentProgress(texts=texts, total_texts=total)
    return translation_pb2.TranslateDocumentResponse(progress=progress)
