"""Part `profile`: which kernels a decode step is made of, and whether attention is a flash kernel."""

from collections.abc import Iterator
from functools import partial

from bench.gpu.measures.kernels import operators, record, summary
from bench.gpu.measures.roofline import Step
from bench.gpu.plan import Findings, Plan
from bench.gpu.sides.ours import Ours

RUNS = 10
K = 8
FUSED = ("flash", "fmha", "kernel_mha", "attend_kernel")
"""In the names of kernels that compute attention without writing its weights to memory."""


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the longest kernels of decode steps; on the CPU, where there are none, ONNX Runtime's operators."""
    record(lambda: None, plan.device)  # so that the profiler is there when CUDA graphs are captured
    ours = Ours(plan, "base", "fp16", Step.capacity(plan))
    without = list[int]()
    for rows in plan.sizes.step_rows:
        kernels = record(partial(_take, Step(ours, rows, plan)), plan.device)
        attention = sorted({kernel.name for kernel in kernels if any(name in kernel.name.lower() for name in FUSED)})
        yield f"{rows} rows", {"of a step": summary(kernels, RUNS), "fused attention": attention}
        without += [] if attention else [rows]
    if plan.device == "cuda" and without:
        raise RuntimeError(f"no kernel of a step is a fused attention kernel with {', '.join(map(str, without))} rows")
    if plan.device == "cpu":
        yield "operators", _operators(ours, plan.sizes.step_rows[0], plan)


def _take(step: Step) -> None:
    for _ in range(RUNS):
        step.take_one()


def _operators(ours: Ours, rows: int, plan: Plan) -> Findings:
    length = plan.sizes.source_tokens
    axes = {"rows": rows, "capacity": length, "source_capacity": length, "k": K}
    return summary(operators(ours.package.graphs().decoder, axes, RUNS, plan.work), RUNS)
