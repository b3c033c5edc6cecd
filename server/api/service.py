"""The gRPC services: protobuf to plain values and back. Nothing below this file has seen a message."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from functools import partial

import grpc

from dragoman import __version__
from dragoman.v1 import (
    decoding_pb2,
    encoding_pb2,
    encoding_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    translation_pb2,
    translation_pb2_grpc,
)
from engine.request import FinishReason
from models.tokenizers.tokenizer import Span
from server.api.decoding import message_of, options_of
from server.api.documents import Documents, Task, check_count, format_of, patient
from server.api.encoding import EncodingService, encoding_defaults, vector_options, write_embedding
from server.api.texts import check_contents, check_options, glossary_of, shape_of
from server.api.values import write_timings
from server.api.ways import Way
from server.catalog.catalog import Catalog, Entry
from server.catalog.reloading import Reload, Report
from server.catalog.served_model import ServedModel
from server.errors import CandidateRefused
from server.telemetry.calls import checked_labels, current_call
from server.telemetry.guards import GuardFlag
from server.translation.answer import Leg, TextDelta, TranslatedSentence, Translation
from server.translation.options import Route
from server.translation.pivot import translate_by_way
from server.translation.scoring import Candidates, TargetScore
from server.translation.sharing.waiting import Reuse
from server.translation.targets import Alignment, Attention, TargetText, TargetToken
from server.translation.translator import Translator

SERVICES = tuple(
    service.full_name
    for file in (translation_pb2, encoding_pb2, model_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)
"""Full names of the services of the API."""

FINISH_REASONS = {
    FinishReason.END_TOKEN: decoding_pb2.FINISH_REASON_END_TOKEN,
    FinishReason.LENGTH: decoding_pb2.FINISH_REASON_LENGTH,
    FinishReason.STOP_STRING: decoding_pb2.FINISH_REASON_STOP_STRING,
}

REUSES = {
    Reuse.NONE: translation_pb2.REUSE_UNSPECIFIED,
    Reuse.SHARED: translation_pb2.REUSE_SHARED,
    Reuse.CACHED: translation_pb2.REUSE_CACHED,
}

GUARDS = {
    GuardFlag.REPETITION: translation_pb2.GUARD_REPETITION,
    GuardFlag.COPY: translation_pb2.GUARD_COPY,
    GuardFlag.LENGTH_LIMIT: translation_pb2.GUARD_LENGTH_LIMIT,
    GuardFlag.LENGTH_RATIO: translation_pb2.GUARD_LENGTH_RATIO,
    GuardFlag.SCRIPT: translation_pb2.GUARD_SCRIPT,
}


TextsAsked = translation_pb2.TranslateRequest | translation_pb2.TranslateDocumentRequest
"""A request of whole texts."""
Asked = (
    TextsAsked
    | translation_pb2.StreamTranslateRequest
    | translation_pb2.TranslateAndEncodeRequest
    | translation_pb2.ScoreRequest
)
"""A request of the TranslationService."""


def register(
    server: grpc.aio.Server,
    models: Catalog[Translator],
    documents: Documents,
    pivots: bool = False,
    reload: Reload | None = None,
) -> None:
    """Adds every service of the API to a server. `pivots`: requests may ask for a way through a third language.

    reload: takes up new versions of models. None: whoever serves does not
    """
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(TranslationService(models, documents, pivots), server)
    encoding_pb2_grpc.add_EncodingServiceServicer_to_server(EncodingService(models), server)
    model_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(models, reload), server)


class TranslationService(translation_pb2_grpc.TranslationServiceServicer):
    """See proto/dragoman/v1/translation.proto."""

    def __init__(self, models: Catalog[Translator], documents: Documents, pivots: bool) -> None:
        self._models, self._documents, self._pivots = models, documents, pivots

    async def Translate(
        self, request: translation_pb2.TranslateRequest, context: object
    ) -> translation_pb2.TranslateResponse:
        """Translates every content of the request."""
        current_call().labels = checked_labels(request.labels)
        way, options = self._way(request), options_of(request.decoding)
        shape = shape_of(request)
        if shape is None:
            translations = await way.ask(request.contents, options)
        else:
            check_contents(request.contents, options)
            translations = await way.texts().translate(request.contents, shape, options)
        response = translation_pb2.TranslateResponse(model=way.last.model.name)
        for translation in translations:
            _write_translation(translation, response.translations.add())
        return response

    async def TranslateDocument(
        self, request: translation_pb2.TranslateDocumentRequest, context: object
    ) -> AsyncIterator[translation_pb2.TranslateDocumentResponse]:
        """Translates a document."""
        current_call().labels = checked_labels(request.labels)
        way, options, document_format = self._way(request), options_of(request.decoding), format_of(request)
        check_options(options)
        check_count(options)
        terms, name = glossary_of(request), way.last.model.name
        task = Task(document_format, request.document, way.languages(), way.texts(patient), terms, options, name)
        async with aclosing(self._documents.translate(task)) as events:
            async for event in events:
                yield event

    def _way(self, request: TextsAsked) -> Way:
        """How texts of a request are translated: through a third language, if it is wanted, allowed and needed."""
        route, prompt = _route(request), _prompt(request)
        pivot = None
        if request.pivot and self._pivots and not request.model:
            pivot = self._models.pivot(route.source_language, route.target_language)
        if pivot is None:
            model = self._models.route(request.model, route.source_language, route.target_language)
            return Way(route, model, model, model.translate, request.no_cache, prompt)
        return Way(route, pivot.first, pivot.second, partial(translate_by_way, pivot), request.no_cache, prompt)

    async def StreamTranslate(
        self, request: translation_pb2.StreamTranslateRequest, context: object
    ) -> AsyncIterator[translation_pb2.StreamTranslateResponse]:
        """Translates one content and sends the text as it is decoded."""
        current_call().labels = checked_labels(request.labels)
        route = _route(request)
        translator = self._models.route(request.model, route.source_language, route.target_language)
        asked = route, options_of(request.decoding), request.no_cache, _prompt(request)
        events = translator.stream(request.content, *asked)
        async with aclosing(events):
            async for event in events:
                yield _stream_response(event)

    async def TranslateAndEncode(
        self, request: translation_pb2.TranslateAndEncodeRequest, context: object
    ) -> translation_pb2.TranslateAndEncodeResponse:
        """Translates every content and gives its vectors."""
        current_call().labels = checked_labels(request.labels)
        route = _route(request)
        translator = self._models.route(request.model, route.source_language, route.target_language)
        asked = route, options_of(request.decoding), vector_options(request), _prompt(request)
        results = await translator.translate_and_encode(request.contents, *asked)
        response = translation_pb2.TranslateAndEncodeResponse(model=translator.model.name)
        for translation, embedding in results:
            _write_translation(translation, response.translations.add())
            write_embedding(embedding, response.embeddings.add())
        return response

    async def Score(self, request: translation_pb2.ScoreRequest, context: object) -> translation_pb2.ScoreResponse:
        """Scores the targets of every content."""
        current_call().labels = checked_labels(request.labels)
        route = _route(request)
        translator = self._models.route(request.model, route.source_language, route.target_language)
        contents = [Candidates(one.content, tuple(one.targets)) for one in request.contents]
        scored = await translator.score(contents, route, _prompt(request))
        response = translation_pb2.ScoreResponse(model=translator.model.name)
        for content in scored:
            message = response.contents.add(
                targets=map(_target_score, content.targets), source_tokens=content.source_tokens
            )
            write_timings(content.timings, message.timings)
        return response


class ModelService(model_pb2_grpc.ModelServiceServicer):
    """See proto/dragoman/v1/model.proto."""

    def __init__(self, models: Catalog[Entry], reload: Reload | None = None) -> None:
        self._models, self._reload = models, reload

    async def ListModels(self, request: model_pb2.ListModelsRequest, context: object) -> model_pb2.ListModelsResponse:
        """Lists every model."""
        return model_pb2.ListModelsResponse(models=map(_model, self._models))

    async def GetModel(self, request: model_pb2.GetModelRequest, context: object) -> model_pb2.GetModelResponse:
        """Gets one model."""
        return model_pb2.GetModelResponse(model=_model(self._models.find(request.name, field="name")))

    async def Reload(self, request: model_pb2.ReloadRequest, context: object) -> model_pb2.ReloadResponse:
        """Takes up a new version of a model."""
        if self._reload is None:
            name = self._models.find(request.name, field="name").model.name
            raise CandidateRefused(name, "this process loads each model once: load it anew, or on Ray deploy again")
        done = await self._reload(request.name)
        return model_pb2.ReloadResponse(
            model=_model(self._models.find(done.name)),
            former_package_sha256=done.former_sha256,
            shadow=None if done.report is None else _shadow_report(done.report),
        )


def _route(request: Asked) -> Route:
    return Route(request.source_language_code, request.target_language_code)


def _prompt(request: Asked) -> str | None:
    return request.prompt if request.HasField("prompt") else None


def _stream_response(event: TextDelta | Translation) -> translation_pb2.StreamTranslateResponse:
    if isinstance(event, TextDelta):
        return translation_pb2.StreamTranslateResponse(text_delta=event.text)
    response = translation_pb2.StreamTranslateResponse()
    _write_translation(event, response.translation)
    return response


def _write_translation(translation: Translation, message: translation_pb2.Translation) -> None:
    """Fills the message in. What is made first and then put into another is copied, text and all."""
    for target in translation.hypotheses:
        _write_hypothesis(target, message.hypotheses.add())
    for leg in translation.legs:
        _write_leg(leg, message.legs.add())
    write_timings(translation.timings, message.timings)
    message.source_tokens, message.reuse = translation.source_tokens, REUSES[translation.reuse]
    message.retried = translation.retried
    if translation.guards:
        message.guards.extend(GUARDS[guard] for guard in translation.guards)
    if translation.sentences:
        message.sentences.extend(map(_sentence, translation.sentences))
    if translation.seed is not None:
        message.seed = translation.seed
    if translation.source_attention is not None:
        message.source_attention.CopyFrom(_attention(translation.source_attention))


def _sentence(sentence: TranslatedSentence) -> translation_pb2.Sentence:
    return translation_pb2.Sentence(
        source_span=_span(sentence.source),
        target_span=_span(sentence.target),
        score=sentence.score,
        guards=(GUARDS[guard] for guard in sentence.guards),
    )


def _span(span: Span) -> translation_pb2.Span:
    begin, end = span
    return translation_pb2.Span(begin=begin, end=end)


def _write_leg(leg: Leg, message: translation_pb2.Leg) -> None:
    message.model, message.source_tokens = leg.model, leg.source_tokens
    message.source_language_code, message.target_language_code = leg.source_language, leg.target_language
    write_timings(leg.timings, message.timings)


def _write_hypothesis(target: TargetText, message: translation_pb2.Hypothesis) -> None:
    message.text, message.tokens = target.text, target.tokens
    message.score, message.log_prob = target.score, target.log_prob
    message.finish_reason = FINISH_REASONS[target.finish_reason]
    if target.target_tokens:
        message.target_tokens.extend(map(_target_token, target.target_tokens))
    if target.expected_utility is not None:
        message.expected_utility = target.expected_utility
    if target.alignment is not None:
        message.alignment.CopyFrom(_alignment(target.alignment))
    if target.attention is not None:
        message.attention.CopyFrom(_attention(target.attention))


def _alignment(alignment: Alignment) -> translation_pb2.Alignment:
    source, target = map(_spans, (alignment.source_spans, alignment.target_spans))
    links = [translation_pb2.Link(source=s, target=t, weight=weight) for s, t, weight in alignment.links]
    return translation_pb2.Alignment(source_spans=source, target_spans=target, links=links)


def _attention(of: Attention) -> translation_pb2.Attention:
    return translation_pb2.Attention(spans=_spans(of.spans), shape=of.shape, weights=of.weights)


def _spans(spans: Sequence[Span]) -> list[translation_pb2.Span]:
    return [_span(span) for span in spans]


def _target_token(token: TargetToken) -> translation_pb2.TargetToken:
    return translation_pb2.TargetToken(id=token.token_id, text=token.text, begin=token.begin, log_prob=token.log_prob)


def _tasks(model: ServedModel) -> Iterator[model_pb2.Task.ValueType]:
    if model.decoder_layers:
        yield model_pb2.TASK_TRANSLATE
    yield model_pb2.TASK_ENCODE
    if model.scores:
        yield model_pb2.TASK_SCORE
    if model.classifier is not None:
        yield model_pb2.TASK_CLASSIFY


def _target_score(target: TargetScore) -> translation_pb2.TargetScore:
    return translation_pb2.TargetScore(
        text=target.text,
        log_prob=target.log_prob,
        score=target.score,
        tokens=len(target.target_tokens),
        target_tokens=map(_target_token, target.target_tokens),
    )


def _shadow_report(report: Report) -> model_pb2.ShadowReport:
    return model_pb2.ShadowReport(
        compared=report.compared,
        equal=report.equal,
        score_difference=report.score_difference,
        slowdown=report.slowdown,
        dropped=report.dropped,
    )


def _model(described: Entry) -> model_pb2.Model:
    model = described.model
    return model_pb2.Model(
        name=model.name,
        source_language_codes=model.source_languages,
        target_language_codes=model.target_languages,
        max_source_tokens=model.max_source_tokens,
        max_new_tokens=model.max_new_tokens,
        max_beams=model.max_beams,
        default_decoding=message_of(model.defaults),
        width=model.width,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        vocabulary_size=model.vocabulary_size,
        precision=model.precision,
        execution_provider=model.execution_provider,
        package_sha256=model.package_sha256,
        checkpoint_sha256=model.checkpoint_sha256,
        max_contents=model.max_contents,
        tasks=_tasks(model),
        default_encoding=encoding_defaults(model),
        state=model_pb2.MODEL_STATE_SERVING if described.open else model_pb2.MODEL_STATE_STOPPED,
        workers=model.workers,
        rows=model.rows,
        memory_bytes=model.memory_bytes,
        prompts=model.prompts,
        prompt=model.prompt or "",
        aligns=model.aligns,
        attends=model.attends,
        labels=() if model.classifier is None else model.classifier.spec.labels,
        labels_tokens=model.classifier is not None and model.classifier.spec.of == "tokens",
        labels_pairs=model.labels_pairs,
        server_version=__version__,
    )
