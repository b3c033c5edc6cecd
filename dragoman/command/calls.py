"""The commands that call a server: translate, encode, classify, score, models, reload, health.

Each gives its exit code.
"""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from dragoman.async_client import AsyncClient
from dragoman.command import output
from dragoman.command.documents import translate_document
from dragoman.command.flags.arguments import Arguments
from dragoman.command.lines import Line, LineError, given_lines, in_order, read_lines
from dragoman.command.output import complain
from dragoman.command.progress import Progress
from dragoman.command.reloading import reload_each
from dragoman.errors import DragomanError, NotFound, Unavailable, Unreachable, is_of_text
from dragoman.results.server import Health
from dragoman.results.translation import Translation

DONE, FAILED = 0, 1


async def _translate(args: Arguments) -> int:
    if args.document is not None:
        return await translate_document(args)
    options = args.translation_options()
    plain = output.ranked_lines if (options["num_return_sequences"] or 1) > 1 else output.translation_line
    show = output.translation_json if args.json else plain
    async with AsyncClient(args.targets, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:

        async def answer(text: str) -> Answer:
            translation = await client.translate(text, timeout_s=args.timeout, **options)
            notes = [] if args.json else output.notes(text, translation)
            if args.timings:
                notes.append(output.timings_line(translation.timings))
            if args.attention is not None and (told := _draw(args.attention, text, translation)):
                notes.append(told)
            return Answer(show(translation), "\n".join(notes))

        return await _answer_lines(args, answer, blank=output.to_json({"text": ""}) if args.json else "")


def _draw(path: Path, text: str, translation: Translation) -> str:
    """Draws where heads look. Returns what people should know of the picture, or nothing."""
    from dragoman.command import heat_maps  # takes matplotlib, which nobody else needs

    return heat_maps.draw(path, text, translation)


async def _encode(args: Arguments) -> int:
    options = args.encoding_options()
    show = output.embedding_json if args.json else output.embedding_line
    async with AsyncClient(args.targets, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:

        async def answer(text: str) -> Answer:
            vector = await client.encode(text, timeout_s=args.timeout, **options)
            note = f"the end of a text was cut off after {vector.source_tokens} tokens" if vector.truncated else ""
            return Answer(show(vector), note)

        return await _answer_lines(args, answer, blank=output.to_json({"values": []}) if args.json else "")


async def _classify(args: Arguments) -> int:
    options = args.classify_options()
    async with AsyncClient(args.targets, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:

        async def answer(text: str) -> Answer:
            if args.pairs:
                text, tab, second = text.partition("\t")
                if not tab:
                    raise LineError("there is no tab; write a text, a tab, and the text that is labelled with it")
                options["second"] = second
            found = await client.classify(text, timeout_s=args.timeout, **options)
            note = f"the end of a text was cut off after {found.source_tokens} tokens" if found.truncated else ""
            return Answer(output.to_json(asdict(found)) if args.json else output.labels_line(text, found), note)

        blank = output.to_json({"labels": [], "spans": []}) if args.json else ""
        return await _answer_lines(args, answer, blank)


async def _score(args: Arguments) -> int:
    options = args.score_options()
    show = output.scores_json if args.json else output.scores_line
    async with AsyncClient(args.targets, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:

        async def answer(line: str) -> Answer:
            text, *targets = line.split("\t")
            if not targets:
                raise LineError("there is no tab; write a text, a tab, and its translations with a tab between two")
            scores = await client.score(text, targets, timeout_s=args.timeout, **options)
            notes = map(output.tokens_line, scores.targets) if args.tokens else ()
            return Answer(show(scores), "\n".join(notes))

        return await _answer_lines(args, answer, blank=output.to_json({"targets": []}) if args.json else "")


async def _models(args: Arguments) -> int:
    show = output.model_json if args.json else output.model_block
    async with AsyncClient(args.targets, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:
        for model in await client.models(timeout_s=args.timeout):
            print(show(model), flush=True)
    return DONE


async def _health(args: Arguments) -> int:
    """Asks every target. Of several, each line says whose it is."""
    return max([await _health_of(target, args) for target in args.targets])


async def _health_of(target: str, args: Arguments) -> int:
    several = len(args.targets) > 1
    whose = f"{target}: " if several else ""
    async with AsyncClient(target, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:
        try:
            health = await client.health(args.service, timeout_s=args.timeout)
        except NotFound:
            way = "leave --service out to ask about the whole server"
            complain(f"{whose}the server has no service {args.service!r}; {way}")
            return FAILED
        except DragomanError as error:
            complain(whose + output.explained(error, [target], args.timeout))
            return FAILED
        if args.json:
            told = {"service": args.service, "status": health.value, "version": await _version(client, args.timeout)}
            told |= {"target": target} if several else {}
    print(output.to_json(told) if args.json else whose + health.value, flush=True)
    return DONE if health is Health.SERVING else FAILED


async def _version(client: AsyncClient, timeout_s: float) -> str | None:
    """Of the server. None: it does not say, or not to this caller."""
    try:
        [model, *_] = await client.models(timeout_s=timeout_s)
    except DragomanError:
        return None
    return model.server_version or None


CALLS = {
    "translate": _translate,
    "encode": _encode,
    "classify": _classify,
    "score": _score,
    "models": _models,
    "reload": reload_each,
    "health": _health,
}


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
    def of_the_line(self) -> bool:
        """Whether another line may fare better."""
        return isinstance(self.error, LineError) or is_of_text(self.error)

    @property
    def ends_run(self) -> bool:
        """Whether every other line must fail in the same way. A server that is overloaded now may not be later."""
        return not self.of_the_line and (isinstance(self.error, Unreachable) or not isinstance(self.error, Unavailable))


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
    explanation = args.as_given(output.explained(refused.error, args.targets, args.timeout))
    complain(f"{args.unit} {refused.number}: {explanation}" if refused.of_the_line else explanation)
    if refused.ends_run or not args.keep_going:
        return None
    return output.error_json(refused.error, explanation) if args.json else ""


def _lines(args: Arguments) -> AsyncIterator[Line]:
    # os.fsencode undoes the locale's decoding of the command line: a text is UTF-8 whatever the locale.
    return read_lines(args.file) if args.file is not None else given_lines(map(os.fsencode, args.texts))


def _wants_progress(args: Arguments) -> bool:
    """Unless asked for: with a file, on a terminal, if the results are not written there too."""
    return args.progress or (args.file is not None and sys.stderr.isatty() and not sys.stdout.isatty())
