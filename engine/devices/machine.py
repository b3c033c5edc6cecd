"""What a machine has to run a model with: installed packages, libraries, a driver, devices."""

import contextlib
import ctypes
import io
import math
import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import onnxruntime as ort

from engine.devices.cudart import CudaRuntime

WHEELS = ("onnxruntime", "onnxruntime-gpu")
"""Packages that install into one folder, so that only one of them can be there."""

CONTROL_GROUP = Path("/sys/fs/cgroup")
CPU_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Microseconds of processor time that a container may use in a period, and the period: of version 2, and of 1."""


def usable_cores(group: Path = CONTROL_GROUP) -> int:
    """Cores this process may use: by its affinity, and by the container's quota.

    group: the container's own control group, as it sees it
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for files in CPU_QUOTAS:
        with contextlib.suppress(OSError, ValueError):  # no such files, or "max": no quota
            quota, period = map(int, " ".join((group / file).read_text() for file in files).split())
            if quota > 0:  # version 1 has -1 for none
                cores = min(cores, max(1, math.ceil(quota / period)))
    return cores


class Machine:
    """This machine."""

    def wheels(self) -> dict[str, str]:
        """Which of WHEELS are installed where the imported ONNX Runtime lies, with their versions.

        One that lies in another folder of the path does no harm: it is never imported.
        """
        folder, found = Path(ort.__file__).parent, {}
        for name in WHEELS:
            with contextlib.suppress(PackageNotFoundError):
                wheel = distribution(name)
                if Path(str(wheel.locate_file(folder.name))).resolve() == folder.resolve():
                    found[name] = wheel.version
        return found

    def providers(self) -> list[str]:
        """The execution providers that the installed ONNX Runtime was built with."""
        return list(ort.get_available_providers())

    def preload(self) -> None:
        """Loads the CUDA libraries that lie in Python packages, where the loader does not look by itself."""
        with contextlib.redirect_stdout(io.StringIO()):  # what it cannot load it prints; `load` tells better
            ort.preload_dlls()

    def load(self, library: str) -> None:
        """Loads a library. Raises OSError."""
        ctypes.CDLL(library)

    def runtime(self) -> CudaRuntime:
        """The CUDA runtime. Raises ImportError."""
        return CudaRuntime.load()

    def visible_devices(self) -> str | None:
        """The variable that hides devices from CUDA, if it is set."""
        return os.environ.get("CUDA_VISIBLE_DEVICES")
