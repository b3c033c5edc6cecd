"""The built library of operators for devices (kernels/device), which graphs of a device step are made of."""

import ctypes
from pathlib import Path

from kernels.library import LibraryError

LIBRARY = Path(__file__).parent / "lib" / "libdragoman_device.so"
OPERATORS = 2
"""Version of the operators that this project's graphs want."""


def device_library(path: Path = LIBRARY, gpu: bool = False) -> Path:
    """Where it lies, for `SessionOptions.register_custom_ops_library`.

    gpu: whether it must have kernels for GPUs: without them its operators run on the CPU provider alone

    Raises:
        LibraryError: it was not built, was built for other operators or another machine, or has no kernels for GPUs.
    """
    if not path.is_file():
        raise LibraryError(f"the operators for GPUs are not built ({path} is missing): make -C kernels device")
    try:
        functions = ctypes.CDLL(str(path))
        operators, has_gpu = functions.dragoman_device_operators(), functions.dragoman_device_has_gpu()
    except (OSError, AttributeError) as error:
        raise LibraryError(f"{path} is no library for this machine ({error}): make -C kernels device") from error
    if operators != OPERATORS:
        raise LibraryError(f"{path} has operators of version {operators}, not {OPERATORS}: make -C kernels device")
    if gpu and not has_gpu:
        raise LibraryError(f"{path} was built without nvcc, for the CPU alone: make -C kernels device NVCC=...")
    return path
