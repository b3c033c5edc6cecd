"""Part `memory`: what a full batch of long sentences takes of the device, CUDA's own memory included."""

from collections.abc import Iterator

from bench.gpu import sources
from bench.gpu.machine import memory_mb
from bench.gpu.plan import Findings, Plan
from bench.gpu.sides.ours import Ours


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields megabytes."""
    sizes = plan.sizes
    before = memory_mb(plan)
    ours = Ours(plan, "base", "fp16", sizes.memory_tokens)
    loaded = memory_mb(plan)
    with ours.engine(sizes.memory_rows) as engine:
        given = sources.of_length(ours.config, sizes.memory_rows, sizes.memory_tokens)
        engine.translate(given, 1, sizes.memory_tokens)
        used = memory_mb(plan)
    yield (
        "memory",
        {
            "rows": sizes.memory_rows,
            "length": sizes.memory_tokens,
            "before_mb": before,
            "loaded_mb": loaded - before,
            "used_mb": used - before,
        },
    )
