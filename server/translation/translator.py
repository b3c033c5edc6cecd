"""The use cases: texts in, results out. Knows neither protobuf nor the engine.

    check -> permit -> tokenise -> submit -> wait for the engine's events -> detokenise

All texts of a call are checked before the first is submitted. Leaving a call, however, cancels its requests.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine import errors as engine_errors
from engine.request import (
    Encode,
    Encoded,
    Event,
    Failed,
    Finished,
    FinishReason,
    Hypothesis,
    Request,
    Timings,
    Tokens,
    Translate,
)
from engine.targets import TargetRules
from models.decoding import Options
from models.tokenizers.tokenizer import TextStream, Tokenizer
from server.admission.permits import Admission
from server.catalog.served_model import ServedModel
from server.errors import (
    Draining,
    EmptyContents,
    EngineFailed,
    EngineStopped,
    NotFinite,
    OutOfMemory,
    ServerError,
    TooManyContents,
)
from server.telemetry.calls import AnsweredContent, current_call
from server.telemetry.guards import guard_flags
from server.telemetry.model_metrics import ModelMetrics
from server.translation.mailbox import Mailbox
from server.translation.options import Route, check_route, resolve
from server.translation.sources import SourceReader, SourceText
from server.translation.targets import TargetText, TargetWriter

MakeRequest = Callable[[tuple[int, ...], Callable[[Event], None]], Request]


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one content: its hypotheses, best first."""

    hypotheses: tuple[TargetText, ...]
    source_tokens: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text to append to what came before."""

    text: str


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one content."""

    values: NDArray[np.float32]
    """[width]"""
    source_tokens: int
    timings: Timings


class Translator:
    """Serves one model. Its methods belong to one event loop."""

    def __init__(
        self,
        model: ServedModel,
        tokenizer: Tokenizer,
        rules: TargetRules,
        admission: Admission,
        submit: Callable[[Request], None],
        metrics: ModelMetrics,
    ) -> None:
        """`rules`: what holds for every target of the model.

        submit: queues a request, whose events then come from another thread
        """
        self.model = model
        self._tokenizer, self._rules = tokenizer, rules
        self._sources = SourceReader(tokenizer, model.max_source_tokens, metrics)
        self._admission = admission
        self._submit = submit
        self._metrics = metrics
        self._mailbox = Mailbox()

    async def translate(self, contents: Sequence[str], route: Route, options: Options) -> list[Translation]:
        """Translates every content; results are in their order. Raises ServerError."""
        target = self._target_language(route, contents)
        make = partial(Translate, decoding=resolve(options, self.model), rules=self._rules)
        async with self._open(self._named(contents), make, target) as calls:
            writer = TargetWriter(self._tokenizer)
            return [await self._translation(call, await call.event(), writer) for call in calls]

    async def stream(self, content: str, route: Route, options: Options) -> AsyncGenerator[TextDelta | Translation]:
        """Translates one content: its text as it is settled, then the whole result. Raises ServerError.

        Close it (`contextlib.aclosing`) to leave it early.
        """
        target = self._target_language(route, [content])
        make = partial(Translate, decoding=resolve(options, self.model), rules=self._rules, stream=True)
        async with self._open({"content": content}, make, target) as [call]:
            text = TextStream(self._tokenizer)
            while isinstance(event := await call.event(), Tokens):
                if delta := text.push(event.token_ids):
                    yield TextDelta(delta)
            assert isinstance(event, Finished), event
            if delta := text.finish(event.hypotheses[0].token_ids):
                yield TextDelta(delta)
            yield await self._translation(call, event, TargetWriter(self._tokenizer))

    async def encode(self, contents: Sequence[str], normalize: bool) -> list[Embedding]:
        """Encodes every content; vectors are in their order. Raises ServerError."""
        async with self._open(self._named(contents), Encode) as calls:
            return [self._embedding(call, await call.event(), normalize) for call in calls]

    def _target_language(self, route: Route, contents: Sequence[str]) -> str:
        """The target language, as the model calls it; empty where the texts name theirs themselves."""
        return check_route(route, self.model, all(map(self._tokenizer.names_target, contents)))

    def _named(self, contents: Sequence[str]) -> dict[str, str]:
        """The texts under the names of their fields."""
        if not contents:
            raise EmptyContents
        if len(contents) > self.model.max_contents:
            raise TooManyContents(len(contents), self.model.max_contents)
        return {f"contents[{index}]": text for index, text in enumerate(contents)}

    @asynccontextmanager
    async def _open(
        self, texts: Mapping[str, str], make: MakeRequest, target_language: str = ""
    ) -> AsyncIterator[list["_Call"]]:
        """Submits a request for every text. Those that are not done when the context is left are cancelled."""
        current_call().model = self.model.name
        self._sources.check(texts)
        with self._admission.permit(len(texts)):
            calls = [
                _Call(source, make, self._mailbox) for source in await self._sources.tokenize(texts, target_language)
            ]
            for call in calls:
                self._submit(call.request)
        try:
            yield calls
        finally:
            for call in calls:
                call.request.cancel()

    async def _translation(self, call: "_Call", event: Event, writer: TargetWriter) -> Translation:
        assert isinstance(event, Finished), event
        self._admission.answered()
        written = await writer.write(event.hypotheses)
        self._metrics.detokenized(written.seconds, call.request.trace_id)
        best, text = event.hypotheses[0], written.texts[0].text
        self._flag(call.source.text, text, best)
        timings = event.timings.around(call.source.seconds, written.seconds)
        current_call().contents.append(call.answered(text, timings, written.started, len(best.token_ids)))
        return Translation(written.texts, len(call.source.token_ids), timings)

    def _flag(self, source: str, text: str, best: Hypothesis) -> None:
        """Counts the signs that a translation is wrong."""
        ended = best.finish_reason is FinishReason.END_TOKEN
        for flag in guard_flags(source, text, best.token_ids[:-1] if ended else best.token_ids):
            self._metrics.flagged(flag)

    def _embedding(self, call: "_Call", event: Event, normalize: bool) -> Embedding:
        assert isinstance(event, Encoded), event
        self._admission.answered()
        norm = float(np.linalg.norm(event.vector)) if normalize else 1.0
        timings = event.timings.around(call.source.seconds, 0.0)
        current_call().contents.append(call.answered(None, timings, time.perf_counter(), 0))
        return Embedding(event.vector / (norm or 1.0), len(call.source.token_ids), timings)


def refusal(error: Exception) -> ServerError:
    """What a caller is told of an engine's error."""
    if isinstance(error, engine_errors.OutOfMemory):
        return OutOfMemory(error.source_tokens)
    if isinstance(error, engine_errors.NotFinite):
        return NotFinite()
    if isinstance(error, engine_errors.Closing):
        return Draining()
    if isinstance(error, engine_errors.Stopped):
        return EngineStopped()
    return EngineFailed()


class _Call:
    """A request, seen from the event loop."""

    def __init__(self, source: SourceText, make: MakeRequest, mailbox: Mailbox) -> None:
        self._loop, self._mailbox = asyncio.get_running_loop(), mailbox
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self.source = source
        self.request = make(source.token_ids, self._deliver)
        self.request.trace_id = current_call().exemplar

    def _deliver(self, event: Event) -> None:
        """Called on an engine thread."""
        self._mailbox.post(self._loop, self._events, event)

    def answered(self, answer: str | None, timings: Timings, detokenized: float, target_tokens: int) -> AnsweredContent:
        """What is to be told of it, once it is answered."""
        tokenized, source_tokens = self.source.started, len(self.source.token_ids)
        return AnsweredContent(
            self.source.text,
            answer,
            timings,
            tokenized,
            self.request.arrived,
            detokenized,
            source_tokens,
            target_tokens,
        )

    async def event(self) -> Event:
        """The next event. Raises ServerError for a failure."""
        event = await self._events.get()
        if not isinstance(event, Failed):
            return event
        raise refusal(event.error) from event.error
