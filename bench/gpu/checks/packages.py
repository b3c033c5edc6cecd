"""Part `packages`: the checkpoint with random weights, and every model as a package of every precision.

Through the export's own steps, but for its verification: on the device, the part `parity` compares more than it does.
"""

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from bench.gpu.plan import PRECISIONS, Findings, Plan, Precision
from bench.packages import unverified
from bench.packages.random_weights import write_checkpoint
from models.package.declared.precision import AttentionKind


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the seconds that each took. They are made side by side: a trace keeps one core busy.

    What is there already, from a run before, is not made again.
    """
    wanted = [(model, precision) for model in plan.models for precision in PRECISIONS]
    jobs = {f"{model} {precision}": (plan, model, precision) for model, precision in wanted}
    jobs = {name: job for name, job in jobs.items() if not plan.package(*job[1:]).exists()}
    cores = os.cpu_count() or 1
    # Forked, because this process has imported everything and computed nothing yet.
    with ProcessPoolExecutor(min(cores, len(wanted)), mp_context=get_context("fork")) as pool:
        written = pool.submit(write_base, plan)
        traces = {pool.submit(write_package, *job): name for name, job in jobs.items() if "base" not in name}
        yield "base checkpoint", {"seconds": written.result()}
        traces |= {pool.submit(write_package, *job): name for name, job in jobs.items() if "base" in name}
        for future in as_completed(traces):
            yield traces[future], {"seconds": future.result()}


def write_base(plan: Plan) -> float:
    """Returns seconds."""
    started = time.perf_counter()
    checkpoint = plan.checkpoint("base")
    if not checkpoint.exists():
        unfinished = checkpoint.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        write_checkpoint(unfinished, plan.sizes.base, plan.zoo)
        unfinished.rename(checkpoint)
    return time.perf_counter() - started


def write_package(plan: Plan, model: str, precision: Precision) -> float:
    """fp32 with plain attention: ONNX Runtime's fused attention has no fp32 kernel on CUDA. Returns seconds."""
    started = time.perf_counter()
    attention: AttentionKind = "plain" if precision == "fp32" else "fused"
    unverified.write_package(plan.checkpoint(model), model, plan.package(model, precision), precision, attention)
    return time.perf_counter() - started
