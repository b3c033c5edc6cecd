"""server.versions.shadow: what counts as an equal answer, against translators whose engines are lists of requests."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from engine.request import Finished, FinishReason, Hypothesis
from models.tokenizers.tokenizer import Tokenizer
from server.admission.permits import Admission
from server.loaded import LoadedModel
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.telemetry.metrics.version import VersionMetrics
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.translator import Translator
from server.versions.rule import Comparison, Rule
from server.versions.shadow import Shadow
from tests.fakes import rules_of
from tests.server.translation.engine import OPTIONS, ROUTE, TIMINGS, Engine, deliver
from tests.serving import MODEL, tokenizer

RULE = Rule(share=1.0, contents=1, equal_texts=0.0, score_difference=1.0, slowdown=2.0, timeout_s=10.0)
CAT, OTHER_CAT, DOG = (b" ca", b"t"), (b" c", b"at"), (b" do", b"g")


class Version:
    """What a shadow asks of a loaded model."""

    def __init__(self, own: Tokenizer) -> None:
        """`own`: its tokenizer, as its package has it."""
        self.model, self.engine = MODEL, Engine()
        registry = CollectorRegistry()
        metrics, cache = ModelMetrics(ModelFamilies(registry), "copy"), AnswerCache(0, AnswerCacheMetrics(registry))
        parts = rules_of(0), Admission(8, self.engine), self.engine.submit, metrics, cache
        self.translator = Translator(MODEL, tokenizer(), *parts)
        self.package = SimpleNamespace(tokenizer=own)
        self.runner = SimpleNamespace(waiting=0, idle=True, failure=Future[None](), spent_s=lambda source, rows: 0.1)

    async def answer(self, words: tuple[bytes, ...]) -> None:
        """The one request is answered by these pieces."""
        [request] = await self.engine.submitted(1)
        pieces = list(tokenizer().pieces())
        ids = (*map(pieces.index, words), 0)
        deliver(request, Finished((Hypothesis(ids, -0.5, FinishReason.END_TOKEN),), TIMINGS))


async def compared(served: Version, candidate: Version, live: tuple[bytes, ...], new: tuple[bytes, ...]) -> Comparison:
    """A live call is answered by `live`, and by the candidate with `new`."""
    loaded = cast(LoadedModel, served), cast(LoadedModel, candidate)
    shadow = Shadow(RULE, *loaded, VersionMetrics(CollectorRegistry(), [MODEL.name]), chance=lambda: 0.0)
    served.translator.listener = shadow.offer
    call = asyncio.create_task(served.translator.translate(["A cat."], ROUTE, OPTIONS))
    await served.answer(live)
    [found] = await call
    assert len(found.hypotheses[0].token_ids) == found.hypotheses[0].tokens == len(live) + 1
    await candidate.answer(new)
    assert await shadow.verdict() is None
    return shadow.comparison


@pytest.mark.parametrize(("new", "equal"), [(CAT, 1), (OTHER_CAT, 0), (DOG, 0)])
async def test_equal_texts_of_other_tokens_are_not_equal(new: tuple[bytes, ...], equal: int) -> None:
    found = await compared(Version(tokenizer()), Version(tokenizer()), CAT, new)
    assert (found.compared, found.equal) == (1, equal)


async def test_ids_of_two_tokenizers_are_not_compared() -> None:
    another = cast(Tokenizer, SimpleNamespace())
    found = await compared(Version(tokenizer()), Version(another), CAT, OTHER_CAT)
    assert (found.compared, found.equal) == (1, 1)
