"""Part `roofline`: how long a decode step takes, and how long it must take.

Its floor is the larger of two: the bytes it must move over the bandwidth of a copy within the device, and its kernels
times what one empty kernel takes within a CUDA graph.
"""

from collections.abc import Iterator

import torch

from bench.gpu import sources
from bench.gpu.measures.kernels import record
from bench.gpu.plan import Findings, Plan
from bench.gpu.sides.ours import Ours
from bench.measure import Series, seconds
from engine.decoder import Ask
from models.best_tokens import padded_size
from models.config import ModelConfig, ModelShape

BEST_OF = 10
EMPTY_KERNELS = 256
WARM_UPS = 3
FP16_BYTES = 2


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the bandwidth, the time of an empty kernel, and for several numbers of rows a step and its floor.

    On the CPU there are no launches, and the floor is that of the bytes.
    """
    if plan.device == "cuda":
        torch.cuda.set_device(plan.device_id)
    bandwidth = copy_bandwidth(plan.torch_device, plan.sizes.copy_bytes)
    yield "copy", {"bytes": plan.sizes.copy_bytes, "bytes_per_s": bandwidth}
    kernel_s = empty_kernel_s() if plan.device == "cuda" else 0.0
    yield "empty kernel", {"us": kernel_s * 1e6}
    ours = Ours(plan, "base", "fp16", Step.capacity(plan))
    table: dict[int, Findings] = {}
    for rows in plan.sizes.step_rows:
        moved, ms = step_bytes(ours.config, rows, plan), Step(ours, rows, plan).seconds() * 1000
        table[rows] = {"rows": rows, "ms": ms, "bytes": moved, "bytes_ms": moved / bandwidth * 1000}
        yield f"{rows} rows", table[rows]
    # In the end, and with CUDA graphs captured anew: a profiler may slow down what it watches, and may not see into
    # graphs that were there before it.
    record(lambda: None, plan.device)
    for rows, found in table.items():
        yield f"{rows} rows", found | launches(Step(ours, rows, plan), found, kernel_s, plan)


def launches(step: "Step", found: Findings, kernel_s: float, plan: Plan) -> Findings:
    """The kernels of a step, how long they take, and the floor. Raises RuntimeError where the profiler saw none."""
    kernels = record(step.take_one, plan.device)
    if plan.device == "cuda" and not kernels:
        raise RuntimeError("the profiler saw no kernels, so there is no floor")
    kernels_ms, launch_ms = sum(kernel.us for kernel in kernels) / 1000, len(kernels) * kernel_s * 1000
    return {
        "kernels": len(kernels),
        "kernels_ms": kernels_ms,
        "launch_ms": launch_ms,
        "floor_ms": max(found["bytes_ms"], launch_ms),
        "gaps_ms": found["ms"] - kernels_ms,
    }


class Step:
    """A decode step of so many rows, from token ids on the host to candidates on the host, in mid-sentence."""

    SPARE = 16
    """Steps there is room for, beside those of `seconds`."""

    @classmethod
    def capacity(cls, plan: Plan) -> int:
        """Places that a row needs."""
        return 2 * plan.sizes.source_tokens + cls.SPARE

    def __init__(self, ours: Ours, rows: int, plan: Plan) -> None:
        length = plan.sizes.source_tokens
        self._cache = ours.decoder.open_cache(rows)
        for memory in ours.decoder.encode(sources.of_length(ours.config, rows, length)):
            self._cache.join(memory)
        self._tokens, self._length = [ours.config.decoder_start_id] * rows, length
        for _ in range(length // 2):
            self.take_one()

    def take_one(self) -> None:
        self._cache.begin_step(self._tokens, Ask(outlook=None))  # its tokens are nobody's choice
        self._cache.end_step()

    def seconds(self) -> float:
        """The median of what is left to the source's length, about which the step's bytes are counted."""
        values = [seconds(self.take_one) for _ in range(self._length)]
        return Series(values).median


def step_bytes(config: ModelShape, rows: int, plan: Plan) -> int:
    """What a step cannot but move, in fp16: each weight of the decoder once, and keys and values once.

    Each row attends to a source, and to as many target tokens. Activations could stay within the chip.
    """
    assert isinstance(config, ModelConfig)
    width, layers, attended = config.width, config.decoder_layers, 2 * plan.sizes.source_tokens
    attention = 4 * width * width + 2 * width * width  # self: queries, keys, values, output; cross: queries, output
    weights = layers * (attention + 2 * width * config.decoder_ffn) + padded_size(config.target_vocab_size) * width
    cached = rows * layers * 2 * width * attended
    return FP16_BYTES * (weights + cached)


def copy_bandwidth(device: str, size: int) -> float:
    """Bytes read and written a second by a copy of `size` bytes within the device: the best of several."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        if source.is_cuda:
            torch.cuda.synchronize()

    copy()
    return 2 * size / min(seconds(copy) for _ in range(BEST_OF))


def empty_kernel_s() -> float:
    """Seconds of one kernel that does next to nothing, among many in a CUDA graph, each waiting for the one before."""
    number = torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(EMPTY_KERNELS):
            number.add_(1)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    for _ in range(WARM_UPS):
        replay()
    return min(seconds(replay) for _ in range(BEST_OF)) / EMPTY_KERNELS
