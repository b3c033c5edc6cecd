"""What a device runs, and for how long: kernels as torch.profiler sees them, operators as ONNX Runtime does."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu.plan import Device, Findings

SHOWN = 16
"""Names in a summary."""
DTYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


@dataclass(frozen=True)
class Kernel:
    """One run of one kernel or operator, or one copy."""

    name: str
    us: float


def record(work: Callable[[], object], device: Device) -> list[Kernel]:
    """The kernels that `work` runs on CUDA, whoever launched them: CUDA tells the profiler of the whole process.

    On the CPU, those of PyTorch alone.
    """
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as recorded:
        work()
        if device == "cuda":
            torch.cuda.synchronize()
    events = [event for event in recorded.events() or [] if event.device_type.name == activity.name]
    return [Kernel(event.name, event.time_range.elapsed_us()) for event in events]


def operators(graph: Path, axes: Mapping[str, int], runs: int, folder: Path) -> list[Kernel]:
    """The operators of a decoder graph, run on the CPU on zeros. axes: sizes of the inputs' axes, by name."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "operators")
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    shapes = {tensor.name: [axes.get(axis, axis) for axis in tensor.shape] for tensor in session.get_inputs()}
    inputs = {tensor.name: np.zeros(shapes[tensor.name], DTYPES[tensor.type]) for tensor in session.get_inputs()}
    inputs["total"] += 2  # one would mean to ONNX Runtime that nothing is cached
    inputs["source_total"] += 2
    for _ in range(runs):
        session.run(None, inputs)
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return [Kernel(event["args"]["op_name"], event["dur"]) for event in events if event["cat"] == "Node"]


def summary(kernels: Iterable[Kernel], runs: int) -> Findings:
    """Runs and microseconds of each name, a run of the whole, the longest first."""
    found: dict[str, Findings] = {}
    for kernel in kernels:
        entry = found.setdefault(kernel.name, {"count": 0.0, "us": 0.0})
        entry["count"] += 1
        entry["us"] += kernel.us
    longest = sorted(found.items(), key=lambda item: -item[1]["us"])[:SHOWN]
    return {name: {key: value / runs for key, value in entry.items()} for name, entry in longest}
