"""server.translation.translator: against a list of requests instead of an engine."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from engine.errors import Closing, NotFinite
from engine.queueing.cost import Work
from engine.request import Failed, Finished, FinishReason, Hypothesis, Request, Translate
from engine.targets import language_rules
from models.decoding import Options
from models.package.manifest import TargetLanguage
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from server.admission.permits import Admission
from server.errors import (
    BlankContent,
    Draining,
    EmptyContents,
    EngineFailed,
    InvalidRequest,
    LanguageNotSupported,
    OptionOutOfRange,
    OptionsConflict,
    Overloaded,
    SourceTooLong,
    TooManyContents,
)
from server.telemetry.guards import GuardFlag
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.translation.encoding.embeddings import EncodingOptions
from server.translation.options import Route
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.targets import INLINE_TOKENS
from server.translation.translator import Translator
from tests.fakes import rules_of
from tests.server.translation.engine import OPTIONS, ROUTE, TIMINGS, Engine, copy, deliver
from tests.serving import MODEL, ZOO, tokenizer


async def test_translations_come_in_the_order_of_the_contents(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(translator.translate(["A cat.", "Two dogs.", "Rain."], ROUTE, OPTIONS))
    for request in reversed(await engine.submitted(3)):
        deliver(request, copy(request))
    translations = await call
    assert [translation.hypotheses[0].text for translation in translations] == ["A cat.", "Two dogs.", "Rain."]
    assert [translation.source_tokens for translation in translations] == [
        len(request.source_ids) for request in engine.requests
    ]
    for translation in translations:
        told = translation.timings
        assert min(told.tokenize, told.detokenize) > 0
        assert replace(told, tokenize=0.0, detokenize=0.0) == TIMINGS


class WatchedTokenizer(SentencePiecePair):
    """Tells which threads detokenise."""

    threads: set[threading.Thread]

    def decode(self, token_ids: Iterable[int]) -> str:
        self.threads.add(threading.current_thread())
        return super().decode(token_ids)


@pytest.fixture
def watched() -> WatchedTokenizer:
    tokenizer = WatchedTokenizer.load(ZOO, SentencePieceSpec(end_id=0, unknown_id=1, hidden_ids=(0, 32000)))
    assert isinstance(tokenizer, WatchedTokenizer)
    tokenizer.threads = set()
    return tokenizer


@pytest.mark.parametrize(
    ("contents", "hypotheses", "inline"),
    [(1, 1, True), (4, 1, True), (1, 16, False), (4, 5, False)],
    ids=["one", "a few", "many of one content", "many of all contents together"],
)
async def test_many_tokens_are_detokenised_off_the_event_loop(
    watched: WatchedTokenizer,
    engine: Engine,
    admission: Admission,
    registry: CollectorRegistry,
    contents: int,
    hypotheses: int,
    inline: bool,
) -> None:
    model, metrics = replace(MODEL, max_contents=4), ModelMetrics(ModelFamilies(registry), "copy")
    cache = AnswerCache(0, AnswerCacheMetrics(registry))
    translator = Translator(model, watched, rules_of(0), admission, engine.requests.append, metrics, cache)
    call = asyncio.create_task(translator.translate(["A cat."] * contents, ROUTE, OPTIONS, no_cache=True))
    ids = tuple(tokenizer().encode("cat " * 64))
    assert (len(ids) * hypotheses * contents <= INLINE_TOKENS) is inline
    for request in await engine.submitted(contents):
        deliver(request, Finished((Hypothesis(ids, -0.5, FinishReason.LENGTH),) * hypotheses, TIMINGS))
    for translation in await call:
        assert [hypothesis.text for hypothesis in translation.hypotheses] == ["cat " * 63 + "cat"] * hypotheses
    main = threading.main_thread()
    assert (watched.threads == {main}) is inline
    assert hypotheses == 1 or contents > 1 or main not in watched.threads


async def test_every_hypothesis_is_told_with_its_score_tokens_and_end(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(translator.translate(["A cat."], ROUTE, OPTIONS))
    [request] = await engine.submitted(1)
    ids = request.source_ids
    hypotheses = (
        Hypothesis(ids, -0.5, FinishReason.END_TOKEN),
        Hypothesis(ids[:1], -1.5, FinishReason.LENGTH),
    )
    deliver(request, Finished(hypotheses, TIMINGS))
    [translation] = await call
    best, second = translation.hypotheses
    assert (best.text, best.score, best.tokens, best.finish_reason) == (
        "A cat.",
        -0.5,
        len(ids),
        FinishReason.END_TOKEN,
    )
    assert (second.text, second.score, second.tokens, second.finish_reason) == ("A", -1.5, 1, FinishReason.LENGTH)


async def test_tokens_come_back_with_their_part_of_the_text(translator: Translator, engine: Engine) -> None:
    text = "Olá, ação 🙂 日本 e̊!"
    options = Options(with_tokens=True, target_prefix="Bom")
    call = asyncio.create_task(translator.translate(["A cat."], ROUTE, options))
    [request] = await engine.submitted(1)
    prefix, ids = tokenizer().encode_target("Bom"), (*tokenizer().encode_target(text), 0)
    log_probs = tuple(-0.25 * place for place in range(len(ids)))
    found = Hypothesis(ids, -0.5, FinishReason.END_TOKEN, log_probs, log_prob=-9.5)
    deliver(request, Finished((found,), TIMINGS))
    [translation] = await call
    [best] = translation.hypotheses
    assert (best.score, best.log_prob) == (-0.5, -9.5)
    assert best.text == tokenizer().decode((*prefix, *ids))
    assert "Bom" + "".join(token.text for token in best.target_tokens) == best.text
    for token in best.target_tokens:
        assert best.text[token.begin :].startswith(token.text)
    assert tuple(token.token_id for token in best.target_tokens) == ids
    assert tuple(token.log_prob for token in best.target_tokens) == log_probs


def looping(request: Request) -> Finished:
    """A translation that goes round in circles."""
    ids = (*tokenizer().encode_target("a cat "), *tokenizer().encode_target("the ")[:1] * 30)
    return Finished((Hypothesis(ids, -0.5, FinishReason.END_TOKEN),), TIMINGS)


@pytest.mark.parametrize("better", [True, False])
async def test_what_looks_wrong_is_translated_again(translator: Translator, engine: Engine, better: bool) -> None:
    options = Options(retry_on_guard=True, do_sample=True, num_return_sequences=3)
    call = asyncio.create_task(translator.translate(["Two dogs bark."], ROUTE, options))
    [first] = await engine.submitted(1)
    deliver(first, looping(first))
    _, second = await engine.submitted(2)
    assert isinstance(second, Translate)
    careful = second.decoding
    assert (careful.num_beams, careful.no_repeat_ngram_size, careful.do_sample) == (4, 3, False)
    assert careful.num_return_sequences == 3
    right = Finished((Hypothesis(tuple(tokenizer().encode("Dois cães.")), -0.7, FinishReason.END_TOKEN),), TIMINGS)
    deliver(second, right if better else looping(second))
    [translation] = await call
    assert translation.retried
    assert translation.timings.steps == 2 * TIMINGS.steps
    assert (translation.hypotheses[0].text == "Dois cães.") is better
    assert (translation.guards == ()) is better


@pytest.mark.parametrize("how", ["no room", "no time", "it fails"])
async def test_without_a_second_translation_the_first_one_stands(
    translator: Translator, engine: Engine, admission: Admission, how: str
) -> None:
    call = asyncio.create_task(translator.translate(["Two dogs bark."], ROUTE, Options(retry_on_guard=True)))
    [first] = await engine.submitted(1)
    if how == "no room":
        engine.waiting = 8
    elif how == "no time":
        admission.close(Draining)
    deliver(first, looping(first))
    if how == "it fails":
        _, second = await engine.submitted(2)
        deliver(second, Failed(NotFinite()))
    [translation] = await call
    assert GuardFlag.REPETITION in translation.guards and not translation.retried
    assert translation.timings.steps == TIMINGS.steps
    assert len(engine.requests) == 1 + (how == "it fails")


async def test_what_looks_right_or_is_merely_cut_is_not(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(translator.translate(["Two dogs bark."] * 2, ROUTE, Options(retry_on_guard=True), True))
    right, cut = await engine.submitted(2)
    ids = tuple(tokenizer().encode("Dois cães."))
    deliver(right, Finished((Hypothesis(ids, -0.5, FinishReason.END_TOKEN),), TIMINGS))
    deliver(cut, Finished((Hypothesis(ids[:-1], -0.5, FinishReason.LENGTH),), TIMINGS))
    translations = await call
    assert [one.guards for one in translations] == [(), (GuardFlag.LENGTH_LIMIT,)]
    assert not any(one.retried for one in translations)
    assert len(engine.requests) == 2


async def test_a_stream_cannot_be_made_again(translator: Translator, engine: Engine) -> None:
    options = Options(retry_on_guard=True)
    with pytest.raises(OptionsConflict, match="retry_on_guard is true, and the call is stream"):
        await anext(translator.stream("A cat.", ROUTE, options))
    with pytest.raises(OptionsConflict, match="retry_on_guard is true, and the call is encode"):
        await translator.translate_and_encode(["A cat."], ROUTE, options, EncodingOptions())
    assert not engine.requests


async def test_the_engine_gets_the_resolved_options(translator: Translator, engine: Engine) -> None:
    options = Options(num_beams=3, num_return_sequences=2)
    call = asyncio.create_task(translator.translate(["A cat."], ROUTE, options))
    [request] = await engine.submitted(1)
    assert isinstance(request, Translate)
    assert (request.decoding.num_beams, request.decoding.num_return_sequences) == (3, 2)
    assert request.decoding.max_new_tokens == MODEL.defaults.max_new_tokens
    assert not request.stream
    deliver(request, copy(request))
    await call


async def test_each_language_has_its_own_rules(
    engine: Engine, admission: Admission, registry: CollectorRegistry
) -> None:
    model = replace(MODEL, target_languages=("pt", "pt-BR", "es"))
    rules = language_rules(rules_of(0), {"pt": TargetLanguage(begin_id=7), "es": TargetLanguage(start_id=9)})
    cache, metrics = AnswerCache(0, AnswerCacheMetrics(registry)), ModelMetrics(ModelFamilies(registry), "copy")
    translator = Translator(model, tokenizer(), rules_of(0), admission, engine.requests.append, metrics, cache, rules)
    seen: dict[str, tuple[tuple[int, ...], int | None]] = {}
    for tag in ("pt-PT", "es", "pt-BR"):
        call = asyncio.create_task(translator.translate(["A cat."], Route(target_language=tag), OPTIONS))
        request = (await engine.submitted(len(seen) + 1))[-1]
        assert isinstance(request, Translate)
        seen[tag] = (request.rules.prefix_ids, request.rules.forced_begin_id)
        deliver(request, copy(request))
        await call
    start = rules_of(0).prefix_ids
    assert seen == {"pt-PT": (start, 7), "es": ((9,), None), "pt-BR": (start, None)}


@pytest.mark.parametrize(
    ("contents", "route", "options", "error", "where"),
    [
        ([], ROUTE, OPTIONS, EmptyContents, "contents"),
        (["a"] * 5, ROUTE, OPTIONS, TooManyContents, "contents"),
        (["a", "b", "c", " "], ROUTE, OPTIONS, BlankContent, "contents[3]"),
        (["a", "b", "c", ""], ROUTE, OPTIONS, BlankContent, "contents[3]"),
        (["a", "b", "c", "cat " * 200], ROUTE, OPTIONS, SourceTooLong, "contents[3]"),
        (["a", "b", "c", "cat " * 250_000], ROUTE, OPTIONS, SourceTooLong, "contents[3]"),
        (["a"], Route(target_language="de"), OPTIONS, LanguageNotSupported, "target_language_code"),
        (["a"], ROUTE, Options(num_beams=0), OptionOutOfRange, "decoding.num_beams"),
    ],
)
async def test_nothing_is_submitted_unless_everything_is_right(
    translator: Translator,
    engine: Engine,
    contents: list[str],
    route: Route,
    options: Options,
    error: type[InvalidRequest],
    where: str,
) -> None:
    with pytest.raises(error) as caught:
        await translator.translate(contents, route, options)
    assert caught.value.field == where
    assert engine.requests == []


@pytest.mark.parametrize(
    "leave",
    [
        lambda translator: translator.translate(["A cat.", "Two dogs."], ROUTE, OPTIONS),
        lambda translator: translator.encode(["A cat.", "Two dogs."], EncodingOptions()),
    ],
    ids=["translate", "encode"],
)
async def test_leaving_a_call_cancels_all_its_requests(
    translator: Translator, engine: Engine, leave: Callable[[Translator], Coroutine[object, object, object]]
) -> None:
    call = asyncio.create_task(leave(translator))
    requests = await engine.submitted(2)
    assert not any(request.cancelled for request in requests)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert all(request.cancelled for request in requests)


async def test_events_that_come_after_leaving_do_no_harm(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(translator.translate(["A cat."], ROUTE, OPTIONS))
    [request] = await engine.submitted(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    deliver(request, copy(request))
    await asyncio.sleep(0)


async def test_a_failure_of_the_engine_is_the_calls_and_cancels_the_rest(
    translator: Translator, engine: Engine
) -> None:
    call = asyncio.create_task(translator.translate(["A cat.", "Two dogs."], ROUTE, OPTIONS))
    requests = await engine.submitted(2)
    deliver(requests[0], Failed(ValueError("out of memory")))
    with pytest.raises(EngineFailed) as caught:
        await call
    assert "out of memory" not in caught.value.message
    assert isinstance(caught.value.__cause__, ValueError)
    assert requests[1].cancelled


async def test_an_expected_error_of_the_engine_is_passed_on(translator: Translator, engine: Engine) -> None:
    call = asyncio.create_task(translator.translate(["A cat."], ROUTE, OPTIONS))
    [request] = await engine.submitted(1)
    deliver(request, Failed(Closing()))
    with pytest.raises(Draining):
        await call


async def test_calls_beyond_the_queue_are_refused(translator: Translator, engine: Engine) -> None:
    engine.waiting = 7
    with pytest.raises(Overloaded) as caught:
        await translator.translate(["A cat.", "Two dogs."], ROUTE, OPTIONS)
    assert caught.value.metadata == {"waiting": "9", "max_waiting": "8"}
    assert engine.requests == []


async def test_a_bad_request_is_told_so_even_when_the_queue_is_full(translator: Translator, engine: Engine) -> None:
    engine.waiting = 8
    with pytest.raises(BlankContent):
        await translator.translate([" "], ROUTE, OPTIONS)


async def test_what_is_submitted_no_longer_counts_as_made_ready(
    translator: Translator, engine: Engine, admission: Admission
) -> None:
    call = asyncio.create_task(translator.translate(["A cat."] * 4, ROUTE, OPTIONS, no_cache=True))
    requests = await engine.submitted(4)
    with admission.permit(Work(8, 40.0, 5.0, 1, 64)):
        pass
    for request in requests:
        deliver(request, copy(request))
    await call


async def test_phases_on_this_side_are_measured(
    translator: Translator, engine: Engine, registry: CollectorRegistry
) -> None:
    call = asyncio.create_task(translator.translate(["A cat.", "Rain."], ROUTE, OPTIONS))
    for request in await engine.submitted(2):
        deliver(request, copy(request))
    await call
    for phase in ("tokenize", "detokenize"):
        labels = {"model": "copy", "phase": phase}
        assert registry.get_sample_value("dragoman_phase_duration_seconds_count", labels) == 2


async def test_answers_teach_admission_the_pace(
    translator: Translator, engine: Engine, admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[bool] = []
    monkeypatch.setattr(admission, "answered", lambda: answered.append(True))
    call = asyncio.create_task(translator.translate(["A cat.", "Rain."], ROUTE, OPTIONS))
    for request in await engine.submitted(2):
        deliver(request, copy(request))
    await call
    assert len(answered) == 2
