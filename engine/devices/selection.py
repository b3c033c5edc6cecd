"""Which device a model runs on, and why not on the one that was asked for.

All that CUDA needs is looked at before ONNX Runtime is asked: for most of what can be missing it has one warning, and
then uses the CPU.
"""

import os
from dataclasses import dataclass
from typing import Literal

from engine.devices.cudart import CudaError, CudaRuntime
from engine.devices.machine import Machine
from engine.devices.session import CPU, PROVIDERS, Device, DeviceError
from engine.devices.sizing import Load, most_rows, most_tokens
from models.package.declared.precision import WHOLE

INSTALL = "pip install '.[cuda]'"
LIBRARIES = {
    "libcudart.so.13": "nvidia-cuda-runtime==13.*",
    "libcublasLt.so.13": "nvidia-cublas==13.*",
    "libcublas.so.13": "nvidia-cublas==13.*",
    "libcurand.so.10": "nvidia-curand==10.*",
    "libcudnn.so.9": "nvidia-cudnn-cu13==9.*",
}
"""What onnxruntime-gpu 1.31 loads, and the Python package that has it. cuDNN is not among the NEEDED entries of
libonnxruntime_providers_cuda.so, but its reductions (ReduceMax) do not run without it."""
DRIVER = "libcuda.so.1"
CUDA = (13, 0)
"""Version that these libraries want of the driver."""
DRIVER_RELEASE = 580
"""First release of the NVIDIA driver with it."""
CAPABILITY = {"fp32": (7, 5), "fp16": (7, 5), "bf16": (8, 0)}
"""Least compute capability: the wheel has kernels for 7.5 and newer; bf16 came with 8.0."""
WORKSPACE = ":4096:1"
"""Of cuBLAS, one of 4096 KiB for each session: by itself it takes 64 MB on an H100, which our products do not use
(cuBLAS, "cublasSetWorkspace")."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the settings ask for."""

    kind: Literal["cpu", "cuda", "auto"] = "cpu"
    index: int = 0
    memory_fraction: float = 0.9
    cuda_graphs: bool = True


def select_device(wanted: Wanted, load: Load, machine: Machine) -> tuple[Device, str]:
    """The device, and for "auto" why it is not CUDA, if it is not. Raises DeviceError."""
    if wanted.kind == "cuda":
        return open_cuda(wanted, load, machine), ""
    if wanted.kind == "auto":
        try:
            return open_cuda(wanted, load, machine), ""
        except DeviceError as error:
            return open_cpu(load, machine), str(error)
    return open_cpu(load, machine), ""


def open_cpu(load: Load, machine: Machine) -> Device:
    """Raises DeviceError where the model does not run on the CPU."""
    check_wheels(machine)
    if "bf16" in load.graphs.precision.kinds:
        raise DeviceError(
            "the package is bf16, which ONNX Runtime computes on CUDA only: serve it with --device cuda, or export the "
            "checkpoint with --precision fp32"
        )
    return CPU


def open_cuda(wanted: Wanted, load: Load, machine: Machine) -> Device:
    """Raises DeviceError for the first thing that is missing."""
    check_wheels(machine)
    check_build(machine)
    check_driver(machine)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", WORKSPACE)  # read by each session's first product
    runtime = check_libraries(machine)
    check_package(load)
    try:
        return inspect_device(wanted, load, machine, runtime)
    except CudaError as error:
        raise DeviceError(f"CUDA does not start: {error}. See what `nvidia-smi` says of driver and devices") from error


def check_wheels(machine: Machine) -> None:
    """Only one onnxruntime. Raises DeviceError."""
    wheels = machine.wheels()
    if len(wheels) > 1:
        both = " and ".join(f"{name} {version}" for name, version in wheels.items())
        raise DeviceError(
            f"{both} are both installed; they overwrite each other's files, so keep one: pip uninstall --yes "
            f"{' '.join(wheels)}, then pip install '.[cpu]' or {INSTALL}"
        )


def check_package(load: Load) -> None:
    """A precision and operators that CUDA has.

    GroupQueryAttention there: contrib_ops/cuda/bert/group_query_attention.cc registers fp16 and bf16. Raises
    DeviceError.
    """
    if (weights := load.graphs.precision.weights) in WHOLE:
        raise DeviceError(
            f"the package is {weights}, which is made for CPUs: serve it with --device cpu, or export the checkpoint "
            "with --precision fp16"
        )
    if load.graphs.precision.activations == "fp32" and load.graphs.attention == "fused":
        raise DeviceError(
            "the package is fp32 with fused attention, whose CUDA kernel takes fp16 and bf16 only: export the "
            "checkpoint with --precision fp16, or with --attention plain"
        )


def check_build(machine: Machine) -> None:
    """An onnxruntime with CUDA in it. Raises DeviceError."""
    if PROVIDERS["cuda"] not in machine.providers():
        wheels = machine.wheels()
        installed = ", ".join(f"{name} {version}" for name, version in wheels.items()) or "another build"
        raise DeviceError(
            f"the installed ONNX Runtime ({installed}) is built without CUDA: pip uninstall --yes onnxruntime, then "
            f"{INSTALL}"
        )


def check_driver(machine: Machine) -> None:
    """The part of CUDA that comes with the driver. Raises DeviceError."""
    try:
        machine.load(DRIVER)
    except OSError as error:
        raise DeviceError(
            f"no NVIDIA driver: {error}. Install driver {DRIVER_RELEASE} or newer; a container needs it passed in "
            "(docker run --gpus all)"
        ) from error


def check_libraries(machine: Machine) -> CudaRuntime:
    """The parts of CUDA that come with Python packages. Raises DeviceError."""
    machine.preload()
    for library, package in LIBRARIES.items():
        try:
            machine.load(library)
        except OSError as error:
            raise DeviceError(
                f"a CUDA {CUDA[0]} library is missing: {error}. {library} is in '{package}': {INSTALL}"
            ) from error
    try:
        return machine.runtime()
    except ImportError as error:
        raise DeviceError(f"the package 'cuda-bindings==13.*' cannot be imported: {error}. {INSTALL}") from error


def inspect_device(wanted: Wanted, load: Load, machine: Machine, runtime: CudaRuntime) -> Device:
    """The device, if driver, capability and memory do. Raises CudaError too."""
    driver = runtime.driver_version()
    if driver == (0, 0):
        raise DeviceError(f"no NVIDIA driver: {DRIVER} is there, but no driver behind it. See what `nvidia-smi` says")
    if driver < CUDA:
        raise DeviceError(
            f"the NVIDIA driver supports CUDA {_dotted(driver)}; onnxruntime-gpu is built for CUDA {_dotted(CUDA)}: "
            f"install driver {DRIVER_RELEASE} or newer"
        )
    check_index(wanted.index, runtime.device_count(), machine)
    runtime.set_device(wanted.index)
    name, capability = runtime.device_name(wanted.index), runtime.compute_capability(wanted.index)
    least, precision = max((CAPABILITY[kind], kind) for kind in load.graphs.precision.kinds)
    if capability < least:
        raise DeviceError(
            f"device {wanted.index} ({name}) has compute capability {_dotted(capability)}; a package of precision "
            f"{precision} needs {_dotted(least)}: use another device or precision"
        )
    free, total = runtime.memory()
    limit = min(int(total * wanted.memory_fraction), free)
    check_memory(load, limit, f"device {wanted.index} ({name}) has {free / GIB:.1f} of {total / GIB:.1f} GiB free")
    return Device("cuda", wanted.index, name, _dotted(capability), _dotted(driver), limit, wanted.cuda_graphs)


def check_index(index: int, devices: int, machine: Machine) -> None:
    """A device of this number. Raises DeviceError."""
    if index >= devices:
        hidden = machine.visible_devices()
        note = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES is {hidden!r})"
        known = f"0 to {devices - 1}" if devices > 1 else "only device 0" if devices else "none"
        raise DeviceError(f"--device-id is {index}; CUDA sees {devices} devices{note}: choose {known}")


def check_memory(load: Load, limit: int, found: str) -> None:
    """Room for weights, cache and work. Raises DeviceError."""
    if load.total_bytes <= limit:
        return
    rows, tokens = most_rows(load, limit), most_tokens(load, limit)
    lengths = f"{load.source_tokens} source and {load.target_tokens} target tokens"
    others = f", other models {load.besides_bytes / GIB:.2f}" if load.besides_bytes else ""
    fits = [f"{rows} rows of these lengths fit (--max-rows)"] if rows else []
    if tokens:
        fits.append(f"{load.rows} rows of {tokens} tokens (--max-source-tokens, --max-new-tokens)")
    raise DeviceError(
        f"{load.rows} rows of {lengths} take {load.total_bytes / GIB:.2f} GiB (weights {load.weight_bytes / GIB:.2f}, "
        f"cache {load.cache_bytes / GIB:.2f}, work {load.work_bytes / GIB:.2f}{others}); {found}, and "
        f"{limit / GIB:.2f} may be used (--device-memory-fraction): {', or '.join(fits) or 'not even one row fits'}"
    )


def _dotted(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)
