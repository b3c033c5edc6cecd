"""Part `served`: the server as its users start it, called over gRPC, against its engine alone with rows always full."""

import time
from collections.abc import Iterator
from itertools import cycle, takewhile
from typing import TYPE_CHECKING

from bench.gpu import sources, wheels
from bench.gpu.plan import Findings, Plan
from bench.gpu.sides.ours import Ours, Tokens

if TYPE_CHECKING:
    from bench.process import Server

PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
WARM_UP_SHARE = 0.25
"""Of the time that is measured, before it."""
LOADS = (0.5, 0.8)
"""Calls that arrive by chance, as a share of those that the server answered in a closed loop."""


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields tokens a second and latencies. Raises MissingModulesError where the server cannot start."""
    wheels.require_server()
    # Not before: the other parts run without gRPC.
    from bench.gpu.sides.callers import Asked, calling
    from bench.process import serving

    size, max_new_tokens = plan.sizes.served, plan.sizes.target_tokens
    texts = sources.texts_near(plan.package("base", "fp16"), size.texts, plan.sizes.source_tokens)
    capacity = max(max_new_tokens, *map(len, texts.values()))
    yield "engine alone", engine_alone(plan, list(texts.values()), capacity)
    with serving("server", settings(plan, capacity)) as server:
        yield "server", device_of(server, plan)
        with calling(Asked(server.target, tuple(texts), max_new_tokens), size.processes) as callers:
            before = Work(server)
            tally = callers.closed_loop(size.callers, WARM_UP_SHARE * size.closed_s, size.closed_s)
            closed = tally.findings(size.closed_s)
            yield "closed loop", {"callers": size.callers, **closed, **before.until_now()}
            for load in LOADS:
                tally = callers.open_loop(load * closed["calls_per_s"], size.open_s)
                yield f"Poisson arrivals, {load:g} of that", tally.findings(size.open_s)


def settings(plan: Plan, capacity: int) -> list[str]:
    """Command line of the server. It has the rows of one worker on a CPU too, where it would have more workers."""
    device = ["--device", plan.device, "--device-id", str(plan.device_id), "--workers", "1"]
    room = ["--max-source-tokens", str(capacity), "--max-new-tokens", str(capacity)]
    rows = ["--max-rows", str(plan.sizes.served.callers)]
    graphs = [] if plan.cuda_graphs else ["--no-cuda-graphs"]
    package = ["--package", str(plan.package("base", "fp16"))]
    return [*package, *device, *rows, *room, *graphs, "--log-level", "warning"]


def engine_alone(plan: Plan, given: list[Tokens], capacity: int) -> Findings:
    """Twice as many sentences are outstanding as there are rows, so that each row is filled again at once."""
    size, max_new_tokens = plan.sizes.served, plan.sizes.target_tokens
    ours, tokens, texts = Ours(plan, "base", "fp16", capacity), 0, 0
    with ours.engine(size.callers) as engine:
        begins_s = time.perf_counter() + WARM_UP_SHARE * size.open_s
        ends_s = begins_s + size.open_s
        endless = takewhile(lambda _: time.perf_counter() < ends_s, cycle(given))
        for hypothesis in engine.stream(endless, 1, max_new_tokens, outstanding=2 * size.callers):
            if begins_s <= time.perf_counter() < ends_s:
                tokens, texts = tokens + len(hypothesis.token_ids), texts + 1
    source_tokens = sum(map(len, given)) / len(given)
    return {
        "rows": size.callers,
        "tokens_per_s": tokens / size.open_s,
        "texts_per_s": texts / size.open_s,
        "source_tokens_a_text": source_tokens,
        "target_tokens_a_text": tokens / max(1, texts),
    }


def device_of(server: "Server", plan: Plan) -> Findings:
    """What its metrics say that it runs on. Raises RuntimeError if that is not what is to be measured."""
    (device,) = [sample.labels for sample in server.samples("dragoman_device_info")]
    memory = {sample.labels["kind"]: sample.value / 1e6 for sample in server.samples("dragoman_device_memory_bytes")}
    graphs = bool(server.counted("dragoman_cuda_graphs"))
    found = {"start_s": server.start_s, **device, "cuda_graphs": graphs}
    found |= {f"memory_{kind}_mb": megabytes for kind, megabytes in memory.items()}
    models = {sample.labels["provider"] for sample in server.samples("dragoman_model_info")}
    if {device["provider"], *models} != {PROVIDERS[plan.device]}:
        raise RuntimeError(f"the server runs on {device['provider']}, its model on {models}")
    if plan.device == "cuda" and (graphs != plan.cuda_graphs or not memory):
        raise RuntimeError(f"the server does not run on the device as it was told to: {found}")
    return found


class Work:
    """What a server does from now on, warm-ups included."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._began = self._now()

    def until_now(self) -> Findings:
        """Means: rows of a step; source tokens of a text; cores that the server kept busy."""
        steps, rows, texts, source_tokens, cpu_s, clock_s = (
            now - then for now, then in zip(self._now(), self._began, strict=True)
        )
        return {
            "rows_a_step": rows / steps,
            "source_tokens_a_text": source_tokens / texts,
            "server_cores": cpu_s / clock_s,
        }

    def _now(self) -> tuple[float, ...]:
        counters = ("steps_total", "rows_computed_total", "finished_total", "source_tokens_total")
        counted = [self._server.counted(f"dragoman_{counter}") for counter in counters]
        return (*counted, self._server.cpu_seconds(), time.perf_counter())
