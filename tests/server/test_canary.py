"""server.canary: known answers of the engine that serves."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from prometheus_client import CollectorRegistry

from engine.devices.session import CPU, Device
from engine.loading.probes import KnownTranslation, KnownVector
from engine.observer import Unobserved
from engine.request import Failed, Request
from engine.runner import Runner
from models.package.declared.graphs import Probe, VectorProbe
from models.package.declared.precision import Precision
from models.package.folder import Package
from server.canary import Canaries, Canary
from server.loaded import rounds_otherwise
from server.telemetry.metrics.canary import CanaryFamilies, CanaryMetrics
from tests.engine.calling import END, RULES
from tests.fakes import BEST, WAIT_S, CopyDecoder, CopySource
from tests.server_process import server_process
from tests.serving import eventually

ZOO = Path(__file__).parents[2] / "models" / "zoo"
SOURCES = [(5, 6, END), (7, 8, 9, END)]
PROBES = [Probe(source_ids=ids, token_ids=ids, score=BEST * len(ids)) for ids in SOURCES]


class Watched:
    """A canary in an engine that copies."""

    def __init__(self, decoder: CopyDecoder, runner: Runner, probes: Sequence[Probe]) -> None:
        self.decoder, self.runner, self.registry = decoder, runner, CollectorRegistry()
        self.asked: list[Request] = []
        self.families = CanaryFamilies(self.registry)
        metrics = CanaryMetrics(self.families, "copy")
        known = [KnownTranslation(probe, RULES) for probe in probes]
        self.canary = Canary("copy", known, self.submit, runner.workers, metrics)

    def submit(self, request: Request) -> None:
        self.asked.append(request)
        self.runner.submit(request)

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"model": "copy", **labels})


@asynccontextmanager
async def watched(probes: Sequence[Probe] = PROBES) -> AsyncIterator[Watched]:
    decoder = CopyDecoder()
    async with Runner(decoder, 4, 2, Unobserved()) as runner:
        yield Watched(decoder, runner, probes)


async def test_every_probe_is_asked_alone_and_for_every_worker() -> None:
    async with watched() as one:
        assert await one.canary.check()
        assert [request.source_ids for request in one.asked] == SOURCES * 3
        assert one.sample("dragoman_canary_differs") == 0
        assert one.sample("dragoman_canary_answers_total", result="equal") == 6


@pytest.mark.parametrize("wrong", [{"token_ids": (5, 5, END)}, {"score": 3 * BEST - 1.0}])
async def test_a_token_or_a_score_that_differs_is_told(wrong: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    async with watched([PROBES[0].model_copy(update=wrong), PROBES[1]]) as one:
        assert not await one.canary.check()
        assert one.sample("dragoman_canary_differs") == 1
        assert one.sample("dragoman_canary_answers_total", result="different") == 3
        assert one.sample("dragoman_canary_answers_total", result="equal") == 3
        assert "the canary of copy, alone: probe 0 has the " in caplog.text
        assert "the canary of copy, in a live batch: probe 0 has the " in caplog.text


async def test_what_was_learnt_is_right() -> None:
    async with watched([PROBES[0].model_copy(update={"score": -9.0})]) as one:
        await one.canary.learn()
        assert await one.canary.check()


async def test_what_a_batch_answers_otherwise_is_not_learnt() -> None:
    async with watched() as one:
        asked = Counter[tuple[int, ...]]()

        def submit(request: Request) -> None:
            asked[request.source_ids] += 1
            if request.source_ids == SOURCES[0] and asked[request.source_ids] > 1:
                request.source_ids = (6, 5, END)
            one.runner.submit(request)

        metrics = CanaryMetrics(one.families, "copy")
        canary = Canary("copy", [KnownTranslation(probe, RULES) for probe in PROBES], submit, 1, metrics)
        await canary.learn()
        assert await canary.check()
        assert asked == {SOURCES[0]: 2, SOURCES[1]: 4}


async def test_vectors_are_known_answers_too(caplog: pytest.LogCaptureFixture) -> None:
    numbers = tuple(CopySource(SOURCES[1]).hidden().mean(axis=0).tolist())
    right = KnownVector(VectorProbe(source_ids=SOURCES[1], numbers=numbers[:3]))
    wrong = KnownVector(VectorProbe(source_ids=SOURCES[1], numbers=(numbers[0] * 1.1, *numbers[1:])))
    async with watched() as one:
        for known, equal in (([right], True), ([right, wrong], False)):
            canary = Canary("copy", known, one.submit, one.runner.workers, CanaryMetrics(one.families, "copy"))
            assert await canary.check() == equal
        assert one.sample("dragoman_canary_answers_total", result="equal") == 6
        assert one.sample("dragoman_canary_answers_total", result="different") == 3
        assert "the canary of copy, alone: probe 1 is off by 0." in caplog.text
        await canary.learn()
        assert await canary.check()


@pytest.mark.parametrize(
    ("precision", "device", "otherwise"),
    [
        ("fp32", CPU, False),
        ("int16", CPU, False),
        ("int8", CPU, True),
        ("int8", replace(CPU, kernels="AVX2"), False),
        ("fp16", CPU, True),
        ("bf16", replace(CPU, kind="cuda", kernels="CUDA"), True),
    ],
)
def test_few_bits_are_rounded_otherwise_but_by_our_own_operators(
    precision: Precision, device: Device, otherwise: bool
) -> None:
    assert rounds_otherwise(precision, device) == otherwise


async def test_an_engine_that_ends_says_nothing_of_answers() -> None:
    async with watched() as one:
        await one.runner.aclose()
        assert await one.canary.check()
        assert one.sample("dragoman_canary_answers_total", result="equal") == 0


async def test_where_nothing_can_be_said_it_is_as_it_was() -> None:
    async with watched([PROBES[0].model_copy(update={"score": 0.5})]) as one:
        assert not await one.canary.check()
        await one.runner.aclose()
        assert not await one.canary.check()
        assert one.sample("dragoman_canary_differs") == 1


async def test_it_looks_before_its_time_where_it_is_asked_to() -> None:
    async with watched() as one:
        canaries = Canaries(lambda: [one.canary])
        task = asyncio.create_task(canaries.watch(10**6))
        for _ in range(2):
            canaries.asked.set()
            await eventually(lambda: len(one.asked) == 6)
            one.asked.clear()
        task.cancel()


async def test_whoever_is_told_hears_what_was_found() -> None:
    events = [Failed(ValueError("broken"))] * 3
    async with watched(PROBES[:1]) as one:

        def submit(request: Request) -> None:
            if events:
                request.deliver(events.pop())
            else:
                one.runner.submit(request)

        metrics = CanaryMetrics(CanaryFamilies(CollectorRegistry()), "copy")
        canary = Canary("copy", [KnownTranslation(PROBES[0], RULES)], submit, 2, metrics)
        states: list[int] = []

        def told(equal: bool) -> None:
            states.append(equal)
            if len(states) == 2:
                seen.set()

        seen = asyncio.Event()
        task = asyncio.create_task(Canaries(lambda: [canary]).watch(0.001, told))
        async with asyncio.timeout(WAIT_S):
            await seen.wait()
        task.cancel()
        assert states[:2] == [False, True]


async def test_without_an_interval_it_never_looks() -> None:
    async with watched() as one:
        await Canaries(lambda: [one.canary]).watch(0.0)
        assert not one.asked


WRONG = """
import sys
from engine.loading import probes
from server.__main__ import main

probes.SCORE_TOLERANCE = 0.0 if "off" in sys.argv else 0.01
sys.exit(main(sys.argv[1:]))
"""
"""A server that takes any rounding for wrong: standard operators sum in another order than export's did."""


@pytest.mark.parametrize(("kernels", "state"), [("off", "NOT_SERVING"), ("auto", "SERVING")])
def test_a_server_takes_itself_out_if_it_is_told_so(kernels: str, state: str) -> None:
    arguments = ("--kernels", kernels, "--canary-health")
    with server_process(ZOO / "en-pt", *arguments, program=WRONG) as server:
        metrics = server.metrics()
        assert metrics("dragoman_canary_differs") == (state == "NOT_SERVING")
        assert metrics("dragoman_canary_answers_total") == 9
        with grpc.insecure_channel(server.target) as channel:
            health: Any = HealthStub(channel)
            answer = health.Check(HealthCheckRequest(), timeout=WAIT_S)
        assert HealthCheckResponse.ServingStatus.Name(answer.status) == state
        assert server.end(signal.SIGTERM) == 0


def test_probes_for_which_there_is_no_room_are_left_out() -> None:
    with server_process(ZOO / "en-pt", "--max-source-tokens", 8) as server:
        assert server.metrics()("dragoman_canary_answers_total") == 0
        assert server.end(signal.SIGTERM) == 0
        assert "the canary of en-pt compares nothing: none of its probes has room in 8 source tokens" in server.told


def test_of_a_package_without_probes_it_is_told_how_to_come_by_some(tiny_package: Package) -> None:
    """It need not be an old one: where samples or their translations are long, export finds none."""
    assert not tiny_package.manifest.graphs.probes
    with server_process(tiny_package.folder) as server:
        assert server.end(signal.SIGTERM) == 0
        assert "which export takes from sample sentences (--samples) that are short" in server.told


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_a_package_of_8_bits_is_as_it_must_be(kernels: str) -> None:
    """Standard operators answer otherwise than the native ones that the probes were recorded with, but always alike."""
    with server_process(ZOO / "en-pt-int8", "--kernels", kernels) as server:
        metrics = server.metrics()
        assert metrics("dragoman_canary_answers_total", result="equal") == 9
        assert metrics("dragoman_canary_differs") == 0
        assert server.end(signal.SIGTERM) == 0
