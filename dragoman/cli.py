"""The command `dragoman`: translate, encode, models, health.

Exit codes: 0 done, 1 failed (one line on standard error says why), 2 wrong usage, 130 interrupted by Ctrl-C,
141 whatever read the output went away.
"""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from dragoman import output
from dragoman.arguments import Arguments, parser
from dragoman.client import AsyncClient
from dragoman.errors import DragomanError, NotFound, Unreachable
from dragoman.lines import Line, LineError, given_lines, in_order, read_lines
from dragoman.progress import Progress
from dragoman.results import Health

DONE, FAILED, INTERRUPTED, PIPE_CLOSED = 0, 1, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code. Wrong usage raises SystemExit(2)."""
    _speak_utf8()
    args = parser().parse_args(argv, namespace=Arguments())
    try:
        return asyncio.run(COMMANDS[args.command](args))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except DragomanError as error:
        _complain(output.explained(error, args.target, args.timeout))
    except OSError as error:
        _complain(f"{error.filename or 'input or output'}: {error.strerror or error}")
    return FAILED


async def _translate(args: Arguments) -> int:
    show = output.translation_json if args.json else output.translation_line
    options = args.translation_options()
    async with AsyncClient(args.target, tls=args.tls_options()) as client:

        async def answer(text: str) -> Answer:
            translation = await client.translate(text, timeout_s=args.timeout, **options)
            return Answer(show(translation), output.timings_line(translation.timings) if args.timings else "")

        return await _answer_lines(args, answer, blank=output.to_json({"text": ""}) if args.json else "")


async def _encode(args: Arguments) -> int:
    show = output.embedding_json if args.json else output.embedding_line
    async with AsyncClient(args.target, tls=args.tls_options()) as client:

        async def answer(text: str) -> Answer:
            vector = await client.encode(text, normalize=args.normalize, model=args.model, timeout_s=args.timeout)
            return Answer(show(vector))

        return await _answer_lines(args, answer, blank=output.to_json({"values": []}) if args.json else "")


async def _models(args: Arguments) -> int:
    show = output.model_json if args.json else output.model_block
    async with AsyncClient(args.target, tls=args.tls_options()) as client:
        for model in await client.models(timeout_s=args.timeout):
            print(show(model), flush=True)
    return DONE


async def _health(args: Arguments) -> int:
    async with AsyncClient(args.target, tls=args.tls_options()) as client:
        try:
            health = await client.health(args.service, timeout_s=args.timeout)
        except NotFound:
            _complain(f"the server has no service {args.service!r}; leave --service out to ask about the whole server")
            return FAILED
    print(output.to_json({"service": args.service, "status": health.value}) if args.json else health.value, flush=True)
    return DONE if health is Health.SERVING else FAILED


COMMANDS = {"translate": _translate, "encode": _encode, "models": _models, "health": _health}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a line became."""

    text: str
    note: str = ""
    """More about it, for standard error."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A line without an answer."""

    number: int
    error: DragomanError | LineError

    @property
    def ends_run(self) -> bool:
        """Whether every other line must fail in the same way."""
        return isinstance(self.error, Unreachable | NotFound)


async def _answer_lines(args: Arguments, answer: Callable[[str], Awaitable[Answer]], blank: str) -> int:
    """Writes one line for every line of the input, in order; stops at a refused one unless told to keep going."""

    async def work(line: Line) -> Answer | Refused:
        try:
            text = line.text()
            return await answer(text) if text.strip() else Answer(blank)
        except (DragomanError, LineError) as error:
            return Refused(line.number, error)

    status = DONE
    async with aclosing(in_order(_lines(args), work, args.concurrency)) as outcomes:
        with Progress(_wants_progress(args)) as progress:
            async for outcome in outcomes:
                if isinstance(outcome, Answer):
                    shown: str | None = outcome.text
                    if outcome.note:
                        progress.clear()
                        print(outcome.note, file=sys.stderr, flush=True)
                else:
                    status = FAILED
                    progress.clear()
                    shown = _report(outcome, args)
                if shown is None:
                    break
                print(shown, flush=True)
                progress.advance()
    return status


def _report(refused: Refused, args: Arguments) -> str | None:
    """Tells of a refused line. Gives the line to write in its place, or None if the run ends here."""
    explanation = output.explained(refused.error, args.target, args.timeout)
    _complain(f"{'text' if args.texts else 'line'} {refused.number}: {explanation}")
    if refused.ends_run or not args.keep_going:
        return None
    return output.error_json(refused.error, explanation) if args.json else ""


def _lines(args: Arguments) -> AsyncIterator[Line]:
    # os.fsencode undoes the locale's decoding of the command line: a text is UTF-8 whatever the locale.
    return read_lines(args.file) if args.file is not None else given_lines(map(os.fsencode, args.texts))


def _wants_progress(args: Arguments) -> bool:
    """Unless asked for: with a file, on a terminal, if the results are not written there too."""
    return args.progress or (args.file is not None and sys.stderr.isatty() and not sys.stdout.isatty())


def _complain(message: str) -> None:
    print(f"dragoman: {message}", file=sys.stderr, flush=True)


def _speak_utf8() -> None:
    for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


def _drop_output() -> None:
    """Lets the interpreter's last flush of standard output go nowhere instead of failing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
