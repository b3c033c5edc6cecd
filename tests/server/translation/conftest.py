"""A translator whose engine is a list of requests."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from server.admission.permits import Admission
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.translation.sharing.answer_cache import AnswerCache
from server.translation.translator import Translator
from tests.fakes import rules_of
from tests.server.translation.engine import Engine
from tests.serving import MODEL, tokenizer


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def admission(engine: Engine) -> Admission:
    return Admission(8, engine)


@pytest.fixture
def translator(engine: Engine, admission: Admission, registry: CollectorRegistry) -> Translator:
    model, metrics = replace(MODEL, max_contents=4), ModelMetrics(ModelFamilies(registry), "copy")
    cache = AnswerCache(0, AnswerCacheMetrics(registry))
    return Translator(model, tokenizer(), rules_of(0), admission, engine.requests.append, metrics, cache)
