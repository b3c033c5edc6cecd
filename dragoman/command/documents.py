"""`dragoman translate --document`: a file in, a file out."""

import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import cast

from dragoman.async_client import AsyncClient
from dragoman.command import output
from dragoman.command.flags.arguments import Arguments
from dragoman.command.output import complain
from dragoman.command.progress import Progress
from dragoman.errors import DragomanError
from dragoman.results.document import DocumentProgress, TranslatedDocument
from dragoman.wire.documents import DocumentFormat, format_of

DONE, FAILED = 0, 1


async def translate_document(args: Arguments) -> int:
    """Translates it and writes what it becomes, which is there whole or not at all. Returns the exit code."""
    assert args.document is not None and args.output is not None
    document_format = cast(DocumentFormat, format_of(args.document.name))
    try:
        found = await _translated(args, args.document.read_bytes(), document_format)
        _write(args.output, found.document)
    except OSError as error:
        complain(f"{error.filename or args.output}: {error.strerror}")
        return FAILED
    except DragomanError as error:
        complain(args.as_given(output.explained(error, args.targets, args.timeout)))
        return FAILED
    told = {"output": str(args.output), "texts": found.texts, "source_tokens": found.source_tokens}
    print(output.to_json({**told, "model": found.model}) if args.json else f"{args.output}: {found.texts} texts")
    return DONE


def _write(target: Path, document: bytes) -> None:
    """All of it or nothing, behind a link where it is one. Raises OSError."""
    target = target.resolve()
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        unfinished.write_bytes(document)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


async def _translated(args: Arguments, document: bytes, document_format: DocumentFormat) -> TranslatedDocument:
    async with AsyncClient(args.targets, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:
        asked = client.translate_document(document, document_format, timeout_s=args.timeout, **args.document_options())
        done = 0
        async with aclosing(asked) as events:
            with Progress(args.progress or sys.stderr.isatty(), unit="texts") as progress:
                async for event in events:
                    if not isinstance(event, DocumentProgress):
                        return event
                    progress.advance(event.texts - done, event.texts / max(event.total_texts, 1))
                    done = event.texts
    raise EOFError("the stream ended without a document")
