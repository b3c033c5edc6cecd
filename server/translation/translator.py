"""The use cases: texts in, results out. Knows neither protobuf nor the engine.

    check -> permit -> tokenise -> submit -> wait for the engine's events -> detokenise

All texts of a call are checked before the first is submitted. Leaving a call, however, cancels its requests.
"""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

from engine.queueing.cost import Work
from engine.request import Encode, Encoded, Event, Finished, Request, Score, Scored, Timings, Tokens, Translate
from engine.targets import TargetRules
from models.decoding import Decoding, Options
from models.languages import choose
from models.tokenizers.tokenizer import TextStream, Tokenizer
from server.admission.permits import Admission
from server.catalog.served_model import ServedModel
from server.errors import DoesNotScore, DoesNotTranslate, EmptyContents, OptionsConflict, ServerError, TooManyContents
from server.telemetry.calls import current_call
from server.telemetry.guards import GuardFlag
from server.telemetry.metrics.model import ModelMetrics
from server.translation.answer import TextDelta, Translation, guards_of
from server.translation.encoding.embeddings import Embedding, EncodingOptions, check_size, resolve_encoding
from server.translation.encoding.labels import Classification, Labelling, LabelOptions, check_pairs, resolve_labelling
from server.translation.minimum_risk import MinimumRisk
from server.translation.options import (
    Asked,
    Route,
    check_attention,
    check_route,
    is_drawn,
    prompt_text,
    second_try,
)
from server.translation.resolver import OptionResolver
from server.translation.scoring import Candidates, ScoredContent, TargetIds, TargetReader, TargetScore, given_hypothesis
from server.translation.sharing.answer_cache import AnswerCache, Question, packed
from server.translation.sharing.asking import Ask, AskAll, each
from server.translation.sharing.shared_work import MakeRequest, SharedWork
from server.translation.sharing.waiting import Opened, Reuse, Waiting
from server.translation.sources import Reading, SourceReader, SourceText
from server.translation.targets import TargetWriter, attention


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
        cache: AnswerCache,
        language_rules: Mapping[str, TargetRules] = MappingProxyType({}),
    ) -> None:
        """`rules`: what holds for every target of the model.

        language_rules: what holds instead for those in a target language, of a decoder that is told
        submit: queues a request, whose events then come from another thread
        """
        self.model = model
        self._tokenizer = tokenizer
        self._options = OptionResolver(model, tokenizer, rules, language_rules)
        self._sources = SourceReader(tokenizer, model.max_source_tokens, metrics)
        [end_id] = rules.end_ids
        self._targets = TargetReader(tokenizer, end_id, model.max_new_tokens, model.max_contents)
        self._admission = admission
        self._work = SharedWork(submit, cache, metrics)
        self._metrics = metrics
        self._risk = MinimumRisk()
        self.listener: Callable[[Asked, Sequence[Translation]], None] | None = None
        """Is told of every request for translations that is answered."""

    @property
    def open(self) -> bool:
        """Whether calls are let in, as far as there is room."""
        return self._admission.open

    def fits(self, source_language: str, prompt: str | None = None) -> Callable[[str], bool]:
        """Whether a text has no more tokens than the model takes. Raises ServerError for the language."""
        return partial(self._sources.fits, reading=self._reading(Route(source_language), [], prompt))

    async def check(self, route: Route, options: Options, prompt: str | None = None) -> None:
        """Raises the ServerError with which `translate` refuses these for any contents."""
        await self._read([], route, options, prompt)

    async def translate(
        self,
        contents: Sequence[str],
        route: Route,
        options: Options,
        no_cache: bool = False,
        prompt: str | None = None,
        goes_on: bool = False,
    ) -> list[Translation]:
        """Translates every content; results are in their order. Raises ServerError.

        no_cache: does the work for this call alone, whatever was done before or is under way
        prompt: the name of the one that is put before every content. Empty: none. None: what the model does
        goes_on: see `Admission.permit`
        """
        reading, decoding = await self._read(contents, route, options, prompt)
        ask = self._ask_translation(reading, decoding, no_cache or is_drawn(decoding, options))
        asked = each(ask, partial(check_attention, decoding, model=self.model))
        named = self._named(contents, f" in {reading.source_language}" if goes_on else "")
        with await self._open(named, asked, decoding, reading, goes_on=goes_on) as waiting:
            writer = TargetWriter(self._tokenizer, decoding.written_prefix)
            found = [await self._translation(one, await one.event(), writer, decoding, reading) for one in waiting]
            if decoding.retry_on_guard:
                careful, pairs = second_try(decoding, self.model), zip(waiting, found, strict=True)
                ask = self._ask_translation(reading, careful, no_cache)
                writer = TargetWriter(self._tokenizer, careful.written_prefix)
                found = [await self._again(one, first, writer, careful, reading, ask) for one, first in pairs]
        self._tell(Asked(contents, route, options, prompt), found)
        return found

    async def stream(
        self, content: str, route: Route, options: Options, no_cache: bool = False, prompt: str | None = None
    ) -> AsyncGenerator[TextDelta | Translation]:
        """Translates one content: its text as it is settled, then the whole result. Raises ServerError.

        Close it (`contextlib.aclosing`) to leave it early.
        """
        reading, decoding = await self._read([content], route, options, prompt)
        self._refuse_second_thoughts(decoding, "stream")
        ask = self._ask_translation(reading, decoding, no_cache or is_drawn(decoding, options), stream=True)
        asked = each(ask, partial(check_attention, decoding, model=self.model))
        with await self._open({"content": content}, asked, decoding, reading) as [waiting]:
            text, prefix = TextStream(self._tokenizer), decoding.written_prefix
            if prefix and (delta := text.push(prefix)):
                yield TextDelta(delta)
            while isinstance(event := await waiting.event(), Tokens):
                if delta := text.push(event.token_ids):
                    yield TextDelta(delta)
            assert isinstance(event, Finished), event
            if delta := text.finish((*prefix, *event.hypotheses[0].token_ids)):
                yield TextDelta(delta)
            found = await self._translation(waiting, event, TargetWriter(self._tokenizer, prefix), decoding, reading)
            self._tell(Asked([content], route, options, prompt), [found])
            yield found

    async def translate_and_encode(
        self,
        contents: Sequence[str],
        route: Route,
        options: Options,
        chosen: EncodingOptions,
        prompt: str | None = None,
    ) -> list[tuple[Translation, Embedding]]:
        """Translates every content and gives its vectors, both of one encoder run. Raises ServerError.

        chosen: of the vectors; how a text becomes tokens (`truncate`, `prompt`) is as `translate` has it
        """
        reading, decoding = await self._read(contents, route, options, prompt)
        self._refuse_second_thoughts(decoding, "encode")
        encoding = resolve_encoding(chosen, self.model)
        rules = self._options.rules_of(reading.target_language)
        ask = self._ask(partial(Translate, decoding=decoding, rules=rules, encoding=encoding))
        vectors_fit = partial(check_size, encoding, model=self.model)
        asked = each(ask, vectors_fit, partial(check_attention, decoding, model=self.model))
        with await self._open(self._named(contents), asked, decoding, reading) as waiting:
            writer = TargetWriter(self._tokenizer, decoding.written_prefix)
            return [await self._both(one, await one.event(), writer, decoding, reading) for one in waiting]

    async def encode(self, contents: Sequence[str], options: EncodingOptions) -> list[Embedding]:
        """Encodes every content; vectors are in their order. Raises ServerError."""
        encoding = resolve_encoding(options, self.model)
        prompt = prompt_text(options.prompt, self.model.encoding.prompt, self.model.encoding.prompts)
        language = choose("", self.model.source_languages) or ""  # of many, none is said: it is the tokenizer's own
        reading = Reading(source_language=language, prompt=prompt, truncate=options.truncate)
        asked = each(self._ask(partial(Encode, encoding=encoding)), partial(check_size, encoding, model=self.model))
        with await self._open(self._named(contents), asked, None, reading) as waiting:
            return [self._embedding(one, await one.event()) for one in waiting]

    async def classify(
        self, contents: Sequence[str], options: LabelOptions, seconds: Sequence[str] = ()
    ) -> list[Classification]:
        """Labels every content, or its tokens; results are in their order. Raises ServerError.

        seconds: as many texts as contents, each of which is labelled with the content in its place
        """
        labelling = resolve_labelling(options, self.model)
        if seconds:
            check_pairs(len(contents), len(seconds), self.model)
        pairs = zip(self._named(contents), seconds, strict=False)
        reading = Reading(truncate=options.truncate, seconds=dict(pairs))
        ask = self._ask(partial(Encode, encoding=labelling.classifier.encoding))
        asked = each(ask, partial(labelling.check_size, most_bytes=self.model.max_message_bytes))
        with await self._open(self._named(contents), asked, None, reading) as waiting:
            return [self._labelled(one, await one.event(), labelling, reading) for one in waiting]

    async def score(
        self, contents: Sequence[Candidates], route: Route, prompt: str | None = None
    ) -> list[ScoredContent]:
        """Scores the targets of every content; results are in their order. Raises ServerError."""
        texts = [candidates.content for candidates in contents]
        reading = self._reading(route, texts, prompt)
        if not self.model.scores:
            raise DoesNotScore(self.model.name)
        named, targets = self._named(texts, ".content"), list[TargetIds]()
        self._targets.check(contents)

        async def ask_all(sources: Sequence[SourceText]) -> list[Waiting]:
            targets.extend(await self._targets.tokenize(contents))
            fed_ids = self._options.rules_of(reading.target_language).fed_ids
            asks = (self._ask(partial(Score, targets=one.token_ids, fed_ids=fed_ids)) for one in targets)
            return [ask(source) for ask, source in zip(asks, sources, strict=True)]

        given = sum(self._sources.guess(candidates.targets)[0] for candidates in contents)
        with await self._open(named, ask_all, None, reading, given) as waiting:
            writer, pairs = TargetWriter(self._tokenizer), zip(waiting, targets, strict=True)
            return [await self._scored(one, await one.event(), of_one, writer) for one, of_one in pairs]

    def _tell(self, asked: Asked, found: Sequence[Translation]) -> None:
        if self.listener is not None:
            self.listener(asked, found)

    def _ask_translation(self, reading: Reading, decoding: Decoding, no_cache: bool, stream: bool = False) -> Ask:
        """What asks for the translation of a source into a language."""
        rules = self._options.rules_of(reading.target_language)
        make = partial(Translate, decoding=decoding, rules=rules, stream=stream)
        question = partial(Question, self.model.package_sha256, decoding, rules)

        def ask(source: SourceText) -> Waiting:
            waiting = Waiting(source, stream)
            kept = not (no_cache or decoding.with_attention)
            self._work.ask(waiting, make, question(packed(source.token_ids)) if kept else None)
            return waiting

        return ask

    def _ask(self, make: MakeRequest) -> Ask:
        """What asks for something of a source that is shared with nobody."""

        def ask(source: SourceText) -> Waiting:
            waiting = Waiting(source)
            self._work.ask(waiting, make)
            return waiting

        return ask

    async def _read(
        self, contents: Sequence[str], route: Route, options: Options, prompt: str | None
    ) -> tuple[Reading, Decoding]:
        """How texts to translate become tokens, and these others. Raises ServerError."""
        reading = self._reading(route, contents, prompt)
        return reading, await self._options.resolve(options, reading.target_language)

    def _reading(self, route: Route, contents: Sequence[str], prompt: str | None) -> Reading:
        """How texts to translate become tokens. The target language is empty where they name theirs themselves."""
        if not self.model.decoder_layers:
            raise DoesNotTranslate(self.model.name)
        before = prompt_text(prompt, self.model.prompt, self.model.prompts)
        names_target = all(self._tokenizer.names_target(before + content) for content in contents)
        route = check_route(route, self.model, names_target)
        return Reading(route.target_language, route.source_language, before)

    def _named(self, contents: Sequence[str], field: str = "") -> dict[str, str]:
        """The texts under the names of their fields; `field` is that of each content."""
        if not contents:
            raise EmptyContents
        if len(contents) > self.model.max_contents:
            raise TooManyContents(len(contents), self.model.max_contents)
        return dict(zip(_fields(self.model.max_contents, field), contents, strict=False))

    async def _open(
        self,
        texts: Mapping[str, str],
        ask: AskAll,
        decoding: Decoding | None,
        reading: Reading,
        given: float = 0.0,
        goes_on: bool = False,
    ) -> Opened:
        """Asks for every text, and gives a context: those that are not done when it is left are cancelled.

        decoding: None asks for no new tokens. given: target tokens that the call brings, about
        """
        call = current_call()
        call.model = self.model.name
        self._sources.check(texts, reading)
        with self._admission.permit(self._work_of(texts.values(), decoding, given), call.deadline, goes_on):
            return Opened(await ask(await self._sources.tokenize(texts, reading)))

    def _work_of(self, texts: Collection[str], decoding: Decoding | None, given: float) -> Work:
        """What the texts of this call are expected to ask of the engine."""
        call, (tokens, longest) = current_call(), self._sources.guess(texts)
        beams, most, passes = 0, 0, 0
        if decoding is not None:
            beams, most, passes = decoding.rows, decoding.max_new_tokens, decoding.passes
        return Work(len(texts), tokens, longest, beams, most, call.caller, call.bulk, given, passes)

    async def _translation(
        self, waiting: Waiting, event: Event, writer: TargetWriter, decoding: Decoding, reading: Reading
    ) -> Translation:
        assert isinstance(event, Finished), event
        spans = partial(self._sources.spans, waiting.source, reading) if decoding.with_alignment else None
        if decoding.mbr_samples:
            hypotheses, written = await self._risk.write(event.hypotheses, writer, decoding.num_return_sequences, spans)
        else:
            hypotheses, written = event.hypotheses, await writer.write(event.hypotheses, spans)
        self._metrics.detokenized(written.seconds, waiting.trace_id)
        best, text, source = hypotheses[0], written.texts[0].text, waiting.source
        guards = guards_of(source, text, best, reading.target_language)
        if waiting.reuse is Reuse.NONE:
            self._admission.answered()
            for flag in guards:
                self._metrics.flagged(flag)
        timings = event.timings.around(source.seconds, written.seconds)
        current_call().contents.append(waiting.answered(text, timings, written.started, len(best.token_ids)))
        seed = decoding.seed if decoding.do_sample else None
        found = Translation(written.texts, len(source.token_ids), timings, waiting.reuse, seed=seed, guards=guards)
        if event.source_attention is None:
            return found
        of_source = attention(event.source_attention, self._sources.spans(source, reading))
        return replace(found, source_attention=of_source)

    async def _again(
        self, waiting: Waiting, first: Translation, writer: TargetWriter, careful: Decoding, reading: Reading, ask: Ask
    ) -> Translation:
        """The same where it does not look wrong. Else the content is translated again, and the better one is taken.

        One that is merely cut would be cut again. Where the server has no room or no time for it, the first one stands.
        """
        if not set(first.guards) - {GuardFlag.LENGTH_LIMIT}:
            return first
        try:
            with self._asked_again(waiting, careful, ask) as [again]:
                second = await self._translation(again, await again.event(), writer, careful, reading)
        except ServerError:
            return first
        better = second if len(second.guards) < len(first.guards) else first
        return replace(better, timings=first.timings + second.timings, retried=True)

    def _asked_again(self, waiting: Waiting, careful: Decoding, ask: Ask) -> Opened:
        """Asks for one content more than the call has, as `_open` does. Raises ServerError."""
        source = waiting.source
        with self._admission.permit(self._work_of([source.text], careful, 0.0), current_call().deadline):
            return Opened([ask(source)])

    async def _both(
        self, waiting: Waiting, event: Event, writer: TargetWriter, decoding: Decoding, reading: Reading
    ) -> tuple[Translation, Embedding]:
        translation, source = await self._translation(waiting, event, writer, decoding, reading), waiting.source
        assert isinstance(event, Finished) and event.vectors is not None, event
        timings = Timings(event.timings.queue, event.timings.encode, 0.0, 0, tokenize=source.seconds)
        return translation, Embedding(event.vectors, len(source.token_ids), timings, source.truncated)

    def _refuse_second_thoughts(self, decoding: Decoding, what: str) -> None:
        """Raises OptionsConflict: what is told while it is decoded cannot be taken back, and vectors have one run."""
        way = "send it to Translate, or leave it out"
        if decoding.retry_on_guard:
            raise OptionsConflict("retry_on_guard", True, "the call", what, way)
        if decoding.mbr_samples and what == "stream":
            raise OptionsConflict("mbr_samples", decoding.mbr_samples, "the call", what, way)

    def _embedding(self, waiting: Waiting, event: Event) -> Embedding:
        assert isinstance(event, Encoded), event
        self._admission.answered()
        source, timings = waiting.source, event.timings.around(waiting.source.seconds, 0.0)
        current_call().contents.append(waiting.answered(None, timings, time.perf_counter(), 0))
        return Embedding(event.vectors, len(source.token_ids), timings, source.truncated)

    def _labelled(self, waiting: Waiting, event: Event, labelling: Labelling, reading: Reading) -> Classification:
        logits = self._embedding(waiting, event)
        vectors, told = logits.vectors, (logits.source_tokens, logits.timings, logits.truncated)
        if labelling.of_tokens:
            return Classification((), labelling.spans(vectors, self._sources.spans(waiting.source, reading)), *told)
        return Classification(labelling.labels(vectors), (), *told)

    async def _scored(self, waiting: Waiting, event: Event, targets: TargetIds, writer: TargetWriter) -> ScoredContent:
        assert isinstance(event, Scored), event
        self._admission.answered()
        pairs, penalty = zip(targets.token_ids, event.log_probs, strict=True), self.model.defaults.length_penalty
        found = [given_hypothesis(ids, log_probs, penalty) for ids, log_probs in pairs]
        written, source = await writer.write(found), waiting.source
        self._metrics.detokenized(written.seconds, waiting.trace_id)
        timings = event.timings.around(source.seconds + targets.seconds, written.seconds)
        given = sum(map(len, targets.token_ids))
        current_call().contents.append(waiting.answered(None, timings, written.started, given))
        scores = tuple(
            TargetScore(text.text, one.log_prob, one.score, text.target_tokens)
            for one, text in zip(found, written.texts, strict=True)
        )
        return ScoredContent(scores, len(source.token_ids), timings)


@cache
def _fields(count: int, field: str) -> tuple[str, ...]:
    """The names of so many contents: every call needs them, the refused ones too."""
    return tuple(f"contents[{index}]{field}" for index in range(count))
