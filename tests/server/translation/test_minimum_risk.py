"""Minimum Bayes risk: of samples, those that sacrebleu says are most like all of them."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import fsum

import pytest
import sacrebleu
from prometheus_client import CollectorRegistry

from engine.devices.session import CPU
from engine.loading.load import Loadable, open_decoder
from engine.observer import Unobserved
from engine.request import Finished, FinishReason, Hypothesis
from engine.runner import Runner
from models.decoding import Options
from models.package.folder import Package
from server.admission.permits import Admission
from server.errors import ExtraMissing, OptionsConflict, WouldBeLate
from server.telemetry.calls import Call, begin
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.translation.minimum_risk import MinimumRisk
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.translator import Translator
from tests.checkpoints import flores
from tests.fakes import WAIT_S
from tests.server.translation.engine import ROUTE, TIMINGS, Engine, deliver
from tests.serving import MODEL, ZOO, tokenizer

TEXT = "Where can I buy a ticket for the concert tonight?"
SAMPLED = Options(do_sample=True, seed=5, temperature=1.3, max_new_tokens=40)


def utility(text: str, samples: list[str]) -> float:
    """The mean of what sacrebleu says."""
    return fsum(sacrebleu.sentence_chrf(text, [sample]).score for sample in samples) / len(samples)


async def test_utility_is_the_mean_chrf_by_all() -> None:
    texts = [portuguese for _, portuguese in flores()[:5]]
    samples = [*texts, texts[3], "", texts[3]]
    chosen = await MinimumRisk().choose(samples, 4)
    best = sorted({*samples}, key=lambda text: -utility(text, samples))[:4]
    assert [samples[one.sample] for one in chosen] == best
    assert best[0] == texts[3], "what was drawn three times"
    assert [one.utility for one in chosen] == pytest.approx([utility(text, samples) for text in best])


async def test_equal_samples_are_one() -> None:
    [only] = await MinimumRisk().choose(["O gato.", "O gato.", "O gato."], 3)
    assert only.sample == 0
    assert only.utility == pytest.approx(100)


async def test_of_equally_good_ones_the_first_is_first() -> None:
    chosen = await MinimumRisk().choose(["abc", "xyz", "abc", "xyz"], 2)
    assert [one.sample for one in chosen] == [0, 1]


async def test_whoever_has_left_is_not_worked_for() -> None:
    """Else the next one would wait for minutes."""
    risk = MinimumRisk()
    leaving = asyncio.create_task(risk.choose([f"{number} " + "palavra " * 1000 for number in range(64)], 1))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    async with asyncio.timeout(WAIT_S):
        await risk.choose(["O gato.", "O cão."], 1)


async def test_what_is_late_is_refused() -> None:
    begin(Call(deadline=time.perf_counter() - 0.001))
    with pytest.raises(WouldBeLate, match="0 ms are left"):
        await MinimumRisk().choose(["O gato.", "O cão."], 1)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    loadable = Loadable.of(Package.open(ZOO))
    with (
        closing(open_decoder(loadable, CPU, 64, 64, "off")) as decoder,
        Runner(decoder, 16, 1, Unobserved()) as runner,
    ):
        yield runner


async def test_the_best_of_real_samples(runner: Runner, engine: Engine) -> None:
    registry, package = CollectorRegistry(), Package.open(ZOO)
    translator = Translator(
        replace(MODEL, vocabulary_size=package.manifest.model.target_vocab_size, max_beams=16, rows=16),
        package.tokenizer(),
        Loadable.of(package).rules,
        Admission(8, engine),
        runner.submit,
        ModelMetrics(ModelFamilies(registry), "en-pt"),
        AnswerCache(0, AnswerCacheMetrics(registry)),
    )
    drawn, one, three, again = [
        (await translator.translate([TEXT], ROUTE, SAMPLED | options))[0]
        for options in (
            Options(num_return_sequences=12),
            Options(mbr_samples=12),
            Options(mbr_samples=12, num_return_sequences=3, with_tokens=True),
            Options(mbr_samples=12, num_return_sequences=3, with_tokens=True),
        )
    ]
    samples = [target.text for target in drawn.hypotheses]
    expected = sorted(dict.fromkeys(samples), key=lambda text: -utility(text, samples))[:3]
    assert len({*samples}) > 3
    assert [target.text for target in three.hypotheses] == expected
    assert [target.text for target in one.hypotheses] == expected[:1]
    for target in three.hypotheses:
        assert target.expected_utility == pytest.approx(utility(target.text, samples))
        assert target.score == drawn.hypotheses[samples.index(target.text)].score
        assert "".join(token.text for token in target.target_tokens) == target.text
    assert again.hypotheses == three.hypotheses
    assert drawn.hypotheses[0].expected_utility is None


async def test_what_it_comes_with_is_of_the_chosen_one(translator: Translator, engine: Engine) -> None:
    """Its tokens, and how it looks wrong."""
    good, bad = tokenizer().encode("Two dogs bark at the cat."), tokenizer().encode("a a a a a a")
    samples = [Hypothesis((*ids,), -1.0, FinishReason.END_TOKEN) for ids in (bad, good, good)]
    options = Options(do_sample=True, seed=1, mbr_samples=3)
    call = asyncio.create_task(translator.translate(["A cat."], ROUTE, options))
    [request] = await engine.submitted(1)
    deliver(request, Finished(tuple(samples), TIMINGS))
    [translation] = await call
    assert translation.hypotheses[0].tokens == len(good)
    assert (request.rows, translation.seed, translation.guards) == (3, 1, ())


async def test_streams_have_none(translator: Translator) -> None:
    with pytest.raises(OptionsConflict, match="mbr_samples is 2, and the call is stream"):
        await anext(translator.stream("A cat.", ROUTE, Options(do_sample=True, mbr_samples=2)))


async def test_without_sacrebleu_it_is_refused(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ExtraMissing, match="install the extra 'mbr'"):
        await translator.translate(["A cat."], ROUTE, Options(do_sample=True, mbr_samples=2))
