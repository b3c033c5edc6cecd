"""Part `profile`: which kernels a decode step is made of, and whether attention is a flash kernel."""

from collections.abc import Iterator

from bench.gpu.measures.kernels import operators, record, summary
from bench.gpu.measures.roofline import Step
from bench.gpu.plan import Findings, Plan
from bench.gpu.sides.ours import Ours

RUNS = 10
K = 8
FUSED = ("flash", "fmha", "xqa")
"""In the names of kernels that compute attention without writing its weights to memory."""


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the longest kernels of a decode step; on the CPU, where there are none, ONNX Runtime's operators."""
    rows = plan.sizes.step_rows[0]
    record(lambda: None, plan.device)  # so that the profiler is there when CUDA graphs are captured
    ours = Ours(plan, "base", "fp16", Step.capacity(plan))
    step = Step(ours, rows, plan)

    def steps() -> None:
        for _ in range(RUNS):
            step.take_one()

    kernels = record(steps, plan.device)
    attention = sorted({kernel.name for kernel in kernels if any(name in kernel.name.lower() for name in FUSED)})
    yield "kernels", {"of a step": summary(kernels, RUNS), "fused attention": attention}
    if plan.device == "cuda" and not attention:
        raise RuntimeError(f"none of {len(kernels)} kernels of a step is a fused attention kernel")
    if plan.device == "cpu":
        yield "operators", _operators(ours, rows, plan)


def _operators(ours: Ours, rows: int, plan: Plan) -> Findings:
    length = plan.sizes.source_tokens
    axes = {"rows": rows, "capacity": length, "source_capacity": length, "k": K}
    return summary(operators(ours.package.graphs().decoder, axes, RUNS, plan.work), RUNS)
