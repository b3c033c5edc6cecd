"""Part `packages`: the checkpoint with random weights, and every model as a package of every precision.

Through the export's own steps, but for its verification: on the device, the part `parity` compares more than it does.
"""

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import torch

from bench.gpu.checks.checkpoint import write_checkpoint
from bench.gpu.plan import PRECISIONS, Findings, Plan, Precision
from export.manifest import make_manifest
from export.save import save
from export.trace import trace
from export.variant import variant
from models.checkpoint import load_checkpoint
from models.package.folder import draft, publish
from models.package.manifest import Certificate
from models.package.precision import AttentionKind


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the seconds that each took. They are made side by side: a trace keeps one core busy."""
    jobs = {f"{model} {precision}": (plan, model, precision) for model in plan.models for precision in PRECISIONS}
    cores = os.cpu_count() or 1
    # Forked, because this process has imported everything and computed nothing yet.
    with ProcessPoolExecutor(min(cores, len(jobs)), mp_context=get_context("fork")) as pool:
        written = pool.submit(write_base, plan)
        traces = {pool.submit(write_package, *job): name for name, job in jobs.items() if "base" not in name}
        yield "base checkpoint", {"seconds": written.result()}
        traces |= {pool.submit(write_package, *job): name for name, job in jobs.items() if "base" in name}
        for future in as_completed(traces):
            yield traces[future], {"seconds": future.result()}


def write_base(plan: Plan) -> float:
    """Returns seconds."""
    started = time.perf_counter()
    write_checkpoint(plan.checkpoint("base"), plan.sizes.base, plan.zoo)
    return time.perf_counter() - started


def write_package(plan: Plan, model: str, precision: Precision) -> float:
    """fp32 with plain attention: ONNX Runtime's fused attention has no fp32 kernel on CUDA. Returns seconds."""
    started = time.perf_counter()
    torch.set_num_threads(1)  # the examples of a trace are small
    attention: AttentionKind = "plain" if precision == "fp32" else "fused"
    unverified = Certificate(tolerance=0, encoder_error=0, steps=(), agreements=())
    checkpoint, target = load_checkpoint(plan.checkpoint(model)), plan.package(model, precision)
    with draft(target) as folder:
        graphs = save(trace(variant(checkpoint.model, precision, attention), attention), folder)
        for name, file in checkpoint.files.items():
            shutil.copyfile(file, folder / name)
        publish(folder, make_manifest(checkpoint, model, graphs, unverified), target)
    return time.perf_counter() - started
