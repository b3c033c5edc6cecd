"""A device that a model runs on, and sessions that run there or not at all."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import onnxruntime as ort
from numpy.typing import NDArray

from engine.devices.graphs.saturation import saturates
from engine.niceness import Pace, be_nicer
from models.package.graph_files import Graph

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}

DEVICE_KERNELS = "device"
"""What a device says of itself that runs our own operators for devices."""

NO_GRAPH = -1
"""The `gpu_graph_id` of runs that are not captured."""

HOST_OPERATORS = frozenset({"Shape", "Size", "Range", "ConstantOfShape"}) | frozenset(
    {"Gather", "Slice", "Concat", "Squeeze", "Unsqueeze", "Reshape", "Cast", "Add", "Sub", "Mul", "Div"}
)
"""What ONNX Runtime may leave to the host on another device: arithmetic on shapes, a few numbers a run
(GetCpuPreferredNodes in onnxruntime/core/framework/fallback_cpu_capability.cc). Everything else there is a fallback."""

HOST_REFUSED = "fallback to CPU EP has been explicitly disabled"
"""In the error of a session that forbids the host, for a graph that has nodes for it."""

CAPTURE_REFUSED = "cannot use the graph capture feature"
"""In the error of a session whose graph ONNX Runtime cannot capture (onnxruntime/core/session/inference_session.cc)."""

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""Where a graph in memory finds its files."""

OUT_OF_MEMORY = (
    "Failed to allocate memory for requested buffer",
    "is smaller than requested bytes of",
    "out of memory",
    "ALLOC_FAILED",
    "bad_alloc",
)
"""How ONNX Runtime's arena (onnxruntime/core/framework/bfc_arena.cc), CUDA, cuBLAS and cuDNN say that memory is used
up. Their exceptions have no type of their own."""


class DeviceError(Exception):
    """A device that cannot be used. The message says what is missing, and how to get it."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where a model runs."""

    kind: Literal["cpu", "cuda"] = "cpu"
    index: int = 0
    """Which of the machine's CUDA devices."""
    name: str = ""
    """Of a CUDA device, as its maker calls it."""
    compute_capability: str = ""
    driver: str = ""
    """Newest CUDA version that the driver supports."""
    memory_limit_bytes: int = 0
    """Most that an arena of ONNX Runtime may hold there."""
    cuda_graphs: bool = False
    """A decoder step is one launch of a captured graph, not one of every kernel."""
    kernels: str = ""
    """Instructions that our own operators (kernels/README.md) are built of; "device": those for GPUs run. Empty:
    standard operators run."""
    has_slots: bool = False
    """Rows are told where to look, and may be in any order. Else what a row has is moved with it."""
    steps_ahead: bool = False
    """Steps are made before they are asked for, where somebody says how rows will go on."""

    @property
    def provider(self) -> str:
        """The execution provider of ONNX Runtime."""
        return PROVIDERS[self.kind]

    def provider_options(self, stream: int | None = None, capture: bool = False) -> dict[str, str]:
        """Of a session on this stream, whose runs are captured as CUDA graphs or not."""
        if self.kind == "cpu":
            return {}
        return {
            "device_id": str(self.index),
            "gpu_mem_limit": str(self.memory_limit_bytes),
            # By the next power of two, the default, a cache of 0.3 GB would take 0.5.
            "arena_extend_strategy": "kSameAsRequested",
            # Else fp32 products are rounded to 10 bits of mantissa.
            "use_tf32": "0",
            "enable_cuda_graph": str(int(capture and self.cuda_graphs)),
            **({} if stream is None else {"user_compute_stream": str(stream)}),
        }


CPU = Device()


def open_session(
    graph: Graph | Path | bytes,
    device: Device,
    stream: int | None = None,
    capture: bool = False,
    library: Path | None = None,
) -> ort.InferenceSession:
    """Loads a graph on a device, whose operators may be in a library. Raises DeviceError where it would run elsewhere.

    The weights of one in memory come from the one file that it names. Others are refused.

    On CUDA first with the host forbidden altogether: so run the fused decoder and the graph that moves rows. Graphs
    with arithmetic on shapes are refused then: they are loaded again, and every node on the host is looked at.
    """
    try:
        session = _load(graph, device, stream, capture, library)
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        where = "the CPU" if device.kind == "cpu" else f"device {device.index} ({device.name})"
        raise DeviceError(f"ONNX Runtime loads no model on {where}: {error}") from error
    check_placement(session, device)
    return session


def open_on_cpu(graphs: Sequence[Graph], library: Path, pace: Pace) -> list[ort.InferenceSession]:
    """The same of several with our own operators, each on a thread: they pack weights, without the interpreter."""
    with ThreadPoolExecutor(initializer=partial(be_nicer, pace.nice)) as threads:
        return list(threads.map(partial(open_session, device=CPU, library=library), graphs))


def _load(
    graph: Graph | Path | bytes, device: Device, stream: int | None, capture: bool, library: Path | None
) -> ort.InferenceSession:
    provider = device.provider, device.provider_options(stream, capture)

    def load(strict: bool) -> ort.InferenceSession:
        # Without `enable_fallback=0` ONNX Runtime's Python package prints what fails, and tries again on the CPU.
        options = _options(strict, library)
        if not isinstance(graph, Graph):
            return ort.InferenceSession(graph, options, providers=[provider], enable_fallback=0)
        if isinstance(graph.weights, Path):
            options.add_session_config_entry(WEIGHTS_FOLDER, str(graph.weights))
        else:
            options.add_external_initializers_from_files_in_memory(
                [graph.weights_file], [graph.weights], [len(graph.weights)]
            )
        return ort.InferenceSession(graph.content, options, providers=[provider], enable_fallback=0)

    if device.kind == "cpu":
        return load(strict=False)
    try:
        return load(strict=True)
    except Exception as error:
        if HOST_REFUSED not in str(error):
            raise
        return load(strict=False)


def _options(strict: bool, library: Path | None) -> ort.SessionOptions:
    """`strict`: no node on the host. `library`: of custom operators."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it remembers shapes, and ours change all the time: 1 % of a step
    options.log_severity_level = 4  # what fails is raised, too; its lines wait for whoever reads standard error
    if saturates():  # other kernels are exact; with VNNI it would take them too, at half the speed
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if strict:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if library is not None:
        options.register_custom_ops_library(str(library))
    return options


def bind(
    session: ort.InferenceSession, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]
) -> ort.IOBinding:
    """Binds arrays of the host, by name. They must stay where they are as long as the binding is used."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    for name, array in outputs.items():
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return binding


def check_placement(session: ort.InferenceSession, device: Device) -> None:
    """Raises DeviceError unless every node but arithmetic on shapes runs on the device."""
    if device.provider not in session.get_providers():
        raise DeviceError(f"ONNX Runtime did not load its {device.provider}; it has {session.get_providers()}")
    parts = (
        (part.ep_name, [node.op_type for node in part.get_nodes()])
        for part in session.get_provider_graph_assignment_info()
    )
    strays = stray_operators(parts, device.provider)
    if strays:
        counted = ", ".join(f"{count} {operator}" for operator, count in strays.items())
        raise DeviceError(
            f"ONNX Runtime would run a part of the graph elsewhere than on its {device.provider}: {counted}"
        )


def stray_operators(parts: Iterable[tuple[str, Iterable[str]]], provider: str) -> Mapping[str, int]:
    """How many nodes of which operators are assigned to another provider, though they are no arithmetic on shapes.

    parts: providers, and the operators of nodes that they run.
    """
    strays: dict[str, int] = {}
    for name, operators in parts:
        for operator in operators:
            if name != provider and operator not in HOST_OPERATORS:
                strays[operator] = strays.get(operator, 0) + 1
    return strays


def run_options(graph_id: int = NO_GRAPH) -> ort.RunOptions:
    """Of a run that may return before the device is done; the stream keeps the order.

    graph_id: which captured CUDA graph the run is.
    """
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    # Never left out: ONNX Runtime's Python package asks for it in every run, and that it is not there is told it by an
    # exception that takes longer than the run.
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def is_out_of_memory(error: Exception) -> bool:
    """Whether the device had no room for what was asked."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in OUT_OF_MEMORY)
