"""engine.devices.cudart, and the fake of other tests, against the real cuda-bindings, which load without a driver."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.devices.cudart import CudaError, CudaRuntime
from tests.engine.devices.cuda_bindings import FakeBindings

pytest.importorskip("cuda.bindings", minversion="13", exc_type=ImportError)
bindings = pytest.importorskip("cuda.bindings.runtime")

ARRAY = np.zeros(8, np.uint8)
CALLS: dict[str, Callable[[CudaRuntime], Any]] = {
    "cudaGetDeviceCount": lambda runtime: runtime.device_count(),
    "cudaSetDevice": lambda runtime: runtime.set_device(0),
    "cudaDeviceGetAttribute": lambda runtime: runtime.compute_capability(0),
    "cudaGetDeviceProperties": lambda runtime: runtime.device_name(0),
    "cudaMemGetInfo": lambda runtime: runtime.memory(),
    "cudaStreamCreateWithFlags": lambda runtime: runtime.create_stream(),
    "cudaStreamDestroy": lambda runtime: runtime.destroy_stream(77),
    "cudaStreamSynchronize": lambda runtime: runtime.wait(77),
    "cudaEventCreateWithFlags": lambda runtime: runtime.create_event(),
    "cudaEventDestroy": lambda runtime: runtime.destroy_event(500),
    "cudaEventRecord": lambda runtime: runtime.record(500, 77),
    "cudaEventSynchronize": lambda runtime: runtime.wait_for(500),
    "cudaMemcpyAsync": lambda runtime: runtime.upload(ARRAY, 4096, 77),
    "cudaMemsetAsync": lambda runtime: runtime.clear(4096, 8, 77),
    "cudaHostAlloc": lambda runtime: runtime.page_locked(8),
    "cudaFreeHost": lambda runtime: runtime.free_page_locked(4096),
}


@pytest.mark.parametrize("function", CALLS)
def test_every_function_takes_what_it_is_given(function: str) -> None:
    """Without a driver each says so, but only after it has understood its arguments."""
    runtime = CudaRuntime.load()
    if runtime.driver_version() != (0, 0):
        pytest.skip("there is a driver, and these handles are none of its own")
    with pytest.raises(CudaError, match=rf"{function}: CUDA driver version is insufficient .* \(CUDA error 35\)"):
        CALLS[function](runtime)


def test_copies_go_every_way() -> None:
    runtime = CudaRuntime.load()
    if runtime.driver_version() != (0, 0):
        pytest.skip("there is a driver, and this address is none of its own")
    with pytest.raises(CudaError, match="cudaMemcpyAsync: CUDA driver version is insufficient"):
        runtime.download(4096, ARRAY, 77)
    with pytest.raises(CudaError, match="cudaMemcpyAsync: CUDA driver version is insufficient"):
        runtime.copy(4096, 8192, 8, 77)


def test_every_function_is_called_here() -> None:
    fake = {name for name in vars(FakeBindings) if inspect.isfunction(getattr(FakeBindings, name)) and name[0] != "_"}
    assert fake == {*CALLS, "cudaDriverGetVersion", "cudaGetErrorString"}


def test_the_fake_has_the_numbers_of_the_real_one() -> None:
    for name in ("cudaStreamNonBlocking", "cudaEventDisableTiming", "cudaHostAllocDefault"):
        assert getattr(FakeBindings, name) == getattr(bindings, name)
    for enumeration in ("cudaMemcpyKind", "cudaDeviceAttr"):
        for name, number in vars(getattr(FakeBindings, enumeration)).items():
            assert int(getattr(getattr(bindings, enumeration), name)) == number


def test_a_cpu_does_without_it() -> None:
    """Even though it is installed here."""
    code = "import sys, server.__main__, engine.cuda.decoder; sys.exit('cuda' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
