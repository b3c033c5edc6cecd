"""A sample of every metric that a server can have."""

from collections.abc import Iterable
from itertools import product

from prometheus_client import CollectorRegistry

from engine.observer import RestartCause
from engine.request import FinishReason, Timings
from kernels.library import Counters
from server.telemetry.metrics.cache import AnswerCacheMetrics
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.caller import MOST_CALLERS, QUOTAS, CallerMetrics
from server.telemetry.metrics.canary import CanaryFamilies, CanaryMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.telemetry.metrics.process import ProcessMetrics
from server.telemetry.metrics.reload import ReloadMetrics
from server.telemetry.metrics.version import VersionMetrics
from server.versions.rule import Comparison

TIMINGS = Timings(queue=0.001, encode=0.002, decode=0.02, steps=5)
TRACE = "0af7651916cd43dd8448eb211c80319c"
FACTS = ("device", "name", "provider", "kernels", "compute_capability", "driver", "options")
"""Of a device, as server.placement tells them."""
VERSIONS = ("dragoman", "onnxruntime", "grpcio")


def everything(
    registry: CollectorRegistry,
    workers: int = 1,
    methods: Iterable[str] = ("m",),
    codes: Iterable[str] = ("OK",),
    reasons: Iterable[str] = ("OVERLOADED",),
    models: Iterable[str] = ("en-pt",),
) -> None:
    """Makes a sample of every family, of every combination of these labels, with a trace wherever there can be one."""
    calls = CallMetrics(registry)
    AnswerCacheMetrics(registry)
    process = ProcessMetrics(registry)
    families, canaries = ModelFamilies(registry), CanaryFamilies(registry)
    names = list(models)
    versions = VersionMetrics(registry, names)
    for name in names:
        versions.promoted(name)
        versions.refused(name)
        versions.dropped(name, 1)
        for equal in (True, False):
            versions.compared(name, equal, Comparison())
        model(name, families, canaries, workers)
        loaded = process.model(name)
        loaded.describe("ab", "CPUExecutionProvider", "fp32")
        loaded.describe_engine(memory_bytes=100_000_000, queue_capacity=1024, cuda_graphs=True)
        loaded.loaded(1.0, 0.001)
    for method, code in product(methods, codes):
        calls.rpc_started(method)
        calls.rpc_finished(method, code, 0.1, TRACE)
    for reason in reasons:
        calls.refused(reason)
    callers = CallerMetrics(registry)
    known = [f"caller-{number}" for number in range(MOST_CALLERS + 2)]
    callers.know(known)
    for name in known:
        callers.running(name, 1)
        callers.took(name, texts=2, cost=0.1)
        for quota in QUOTAS:
            callers.refused(name, quota)
    ReloadMetrics(registry, ["callers", "tls", "jwt_keys"])
    process.describe_build(dict.fromkeys(VERSIONS, "1.0"))
    process.describe_device(dict.fromkeys(FACTS, ""), "cuda")
    process.watch_device_memory(lambda: (1, 3))
    process.describe_certificate(lambda: 1e9)


def model(name: str, families: ModelFamilies, canaries: CanaryFamilies, workers: int) -> None:
    """Makes a sample of every family of a model's."""
    metrics = ModelMetrics(families, name)
    metrics.capacity(rows=64 * workers, row_tokens=1024)
    metrics.memory(budget_bytes=1_000_000_000, limit_bytes=1_073_741_824)
    metrics.kernels(lambda: Counters(rows=9, whole_rows=1, saturated=2))
    for worker in range(workers):
        metrics.worker(worker).steps(1, rows=8, seconds=0.005, model_seconds=0.004)
    metrics.restarted(RestartCause.CRASH)
    metrics.tokenized(0.00003, TRACE)
    metrics.first_token(0.004, TRACE)
    metrics.finished(FinishReason.LENGTH, TIMINGS, source_tokens=7, target_tokens=9, trace_id=TRACE)
    metrics.detokenized(0.00004, TRACE)
    CanaryMetrics(canaries, name)
