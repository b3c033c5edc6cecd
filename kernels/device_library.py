"""The built library of operators for GPUs, which ONNX Runtime loads into its sessions itself."""

from pathlib import Path

from kernels.library import LibraryError

LIBRARY = Path(__file__).parent / "lib" / "libdragoman_device.so"


def device_library(path: Path = LIBRARY) -> Path:
    """Where it lies, for `SessionOptions.register_custom_ops_library`.

    Raises:
        LibraryError: it was not built.
    """
    if not path.is_file():
        raise LibraryError(f"the operators for GPUs are not built ({path} is missing): make kernels")
    return path
