"""How many series a server can have: docs/metrics.md states a bound, and no caller moves it."""

import asyncio
import re
from contextlib import suppress
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from dragoman.v1 import encoding_pb2, model_pb2, translation_pb2
from dragoman.v1.translation_pb2 import TranslateRequest
from server import errors
from server.api.documents import Documents
from server.api.methods import methods
from server.catalog.catalog import Catalog
from server.errors import ServerError
from server.http import errors as http_errors
from server.http.app import Served, all_routes
from server.kserve import errors as kserve_errors
from server.kserve.v2 import inference_pb2
from server.telemetry.metrics.call import CallMetrics
from tests.fakes import WAIT_S
from tests.serving import MODEL, Serving, eventually, serving
from tests.watch.families import everything

METRICS_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
CLASSES = [
    value
    for module in (errors, http_errors, kserve_errors)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, ServerError)
]
REASONS = {cls.reason for cls in CLASSES if hasattr(cls, "reason")}
CODES = {"OK", "CANCELLED", "DEADLINE_EXCEEDED"} | {cls.status for cls in CLASSES if hasattr(cls, "status")}
"""Of every answer that a call can get: one by the server, or gRPC's own when the caller leaves."""
METHODS = [
    f"{service.full_name}/{method.name}"
    for file in (translation_pb2, encoding_pb2, model_pb2, inference_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


def by_http() -> set[str]:
    """Names of the calls that routes are counted by."""
    models: Any = Catalog([SimpleNamespace(model=MODEL)])
    documents, rest = cast(Documents, SimpleNamespace(most_bytes=0)), cast(Any, [None] * 6)
    served = Served(models, [*methods(models, documents)], documents, *rest)
    return {route.name for route in all_routes(served) if route.observed}


def count(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())


def most(workers: int, models: int = 1) -> int:
    """The series of a server to which everything has happened."""
    names = [f"model-{number}" for number in range(models)]
    everything(registry := CollectorRegistry(), workers, [*METHODS, *by_http()], CODES, REASONS, names)
    return count(registry)


def test_the_bound_is_the_one_that_is_documented() -> None:
    page = METRICS_PAGE.read_text(encoding="utf-8")
    [bound] = re.findall(r"At most ([\d,]+) of a server with four workers", page)
    assert most(4) == int(bound.replace(",", ""))
    [further] = re.findall(r"(\d+) more for each further worker", page)
    assert most(5) - most(4) == int(further)
    [another] = re.findall(r"([\d,]+) for each\s+further model", page)
    assert most(4, models=2) - most(4) == int(another.replace(",", ""))


async def provoke(server: Serving, number: int) -> None:
    """Calls with values that nobody sent before."""
    translate: Any = server.translations.Translate
    metadata = (("x-request-id", f"r{number}"), ("traceparent", f"00-{number + 1:032x}-{number + 1:016x}-01"))
    requests = [
        TranslateRequest(contents=[f"Number {number}."], target_language_code="pt", labels={f"k{number}": f"{number}"}),
        TranslateRequest(contents=["A cat."], target_language_code="pt", model=f"model-{number}"),
        TranslateRequest(contents=["A cat."], target_language_code=f"x{number}"),
        TranslateRequest(contents=[" " * (number + 1)], target_language_code="pt"),
    ]
    for request in requests:
        with suppress(grpc.aio.AioRpcError):
            await translate(request, metadata=metadata, timeout=WAIT_S)
    channel: Any = server.channel  # whose types know no calls with bytes
    for path in (f"/dragoman.v1.TranslationService/Call{number}", f"/any.Service{number}/Translate"):
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(path)(b"")


async def test_what_callers_choose_makes_no_series() -> None:
    async with serving(max_waiting=64) as server:
        await provoke(server, 0)
        await eventually(lambda: server.calls.running == 0)
        before = count(server.registry)
        await asyncio.gather(*(provoke(server, number) for number in range(1, 16)))
        await eventually(lambda: server.calls.running == 0)
        assert server.metric("dragoman_refusals_total", reason="MODEL_NOT_FOUND") == 16
        assert count(server.registry) == before < most(1)
        labels = {value for family in server.registry.collect() for s in family.samples for value in s.labels.values()}
        assert not [value for value in labels if re.search(r"model-|x1|r1|k1|Call|Service\d", value)]
        assert MODEL.name in labels


async def test_every_answer_has_a_code_and_a_reason_that_the_bound_counts() -> None:
    async with serving() as server:
        await provoke(server, 0)
        await eventually(lambda: server.calls.running == 0)
        samples = [sample for family in server.registry.collect() for sample in family.samples]
    for label, known in (
        ("code", CODES),
        ("reason", REASONS | {"end_token", "length", "stop_string", "hypotheses", "cancelled", "failed"}),
    ):
        assert {sample.labels[label] for sample in samples if label in sample.labels} <= known


def test_most_series_are_the_durations_of_methods_by_code() -> None:
    metrics = CallMetrics(registry := CollectorRegistry())
    before = count(registry)
    for method, code in product([*METHODS, *by_http()], CODES):
        metrics.rpc_finished(method, code, 0.1)
    assert (count(registry) - before) / most(4) == pytest.approx(0.93, abs=0.03)
