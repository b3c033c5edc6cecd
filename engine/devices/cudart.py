"""The few functions of the CUDA runtime that ONNX Runtime's Python package does not offer, called by cuda-bindings.

A stream that all sessions share, copies that are enqueued on it, page-locked memory, and facts about the device.
"""

from ctypes import c_uint8
from typing import Any

import numpy as np
from numpy.typing import NDArray


class CudaError(Exception):
    """A CUDA function failed. The message is CUDA's own."""

    def __init__(self, function: str, code: int, meaning: str) -> None:
        super().__init__(f"{function}: {meaning} (CUDA error {code})")
        self.code = code


class CudaRuntime:
    """The loaded library. Every method raises CudaError."""

    def __init__(self, bindings: Any) -> None:
        """`bindings`: the module `cuda.bindings.runtime`, which has a CUDA runtime in it."""
        self._bindings = bindings
        kind = bindings.cudaMemcpyKind
        self._to_device, self._to_host = kind.cudaMemcpyHostToDevice, kind.cudaMemcpyDeviceToHost
        self._within = kind.cudaMemcpyDeviceToDevice

    @classmethod
    def load(cls) -> "CudaRuntime":
        """Raises ImportError where cuda-bindings is not installed or does not load."""
        from cuda.bindings import runtime  # to serve on a CPU does without it

        return cls(runtime)

    def driver_version(self) -> tuple[int, int]:
        """The newest CUDA version that the driver supports, (0, 0) without a driver."""
        [version] = self._call("cudaDriverGetVersion")
        return version // 1000, version % 1000 // 10

    def device_count(self) -> int:
        [count] = self._call("cudaGetDeviceCount")
        return int(count)

    def compute_capability(self, device: int) -> tuple[int, int]:
        attributes = self._bindings.cudaDeviceAttr
        [major] = self._call("cudaDeviceGetAttribute", attributes.cudaDevAttrComputeCapabilityMajor, device)
        [minor] = self._call("cudaDeviceGetAttribute", attributes.cudaDevAttrComputeCapabilityMinor, device)
        return major, minor

    def device_name(self, device: int) -> str:
        [properties] = self._call("cudaGetDeviceProperties", device)
        name: bytes = properties.name
        return name.decode(errors="replace")

    def set_device(self, device: int) -> None:
        """Makes it the calling thread's device."""
        self._call("cudaSetDevice", device)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the thread's device."""
        free, total = self._call("cudaMemGetInfo")
        return free, total

    def create_stream(self) -> int:
        """A stream that the default stream does not wait for."""
        [stream] = self._call("cudaStreamCreateWithFlags", self._bindings.cudaStreamNonBlocking)
        return int(stream)

    def destroy_stream(self, stream: int) -> None:
        self._call("cudaStreamDestroy", stream)

    def wait(self, stream: int) -> None:
        """Returns when everything on the stream is done. Other Python threads run meanwhile."""
        self._call("cudaStreamSynchronize", stream)

    def create_event(self) -> int:
        [event] = self._call("cudaEventCreateWithFlags", self._bindings.cudaEventDisableTiming)
        return int(event)

    def destroy_event(self, event: int) -> None:
        self._call("cudaEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        """Makes the event stand for everything on the stream so far."""
        self._call("cudaEventRecord", event, stream)

    def wait_for(self, event: int) -> None:
        """Returns when what the event stands for is done. Other Python threads run meanwhile."""
        self._call("cudaEventSynchronize", event)

    def upload(self, source: NDArray[Any], target: int, stream: int) -> None:
        """Enqueues a copy to the device. `source` is page-locked, contiguous, and left alone until it is done."""
        self._call("cudaMemcpyAsync", target, source, source.nbytes, self._to_device, stream)

    def download(self, source: int, target: NDArray[Any], stream: int) -> None:
        """Enqueues a copy from the device. `target` is page-locked and contiguous."""
        self._call("cudaMemcpyAsync", target, source, target.nbytes, self._to_host, stream)

    def copy(self, source: int, target: int, size_bytes: int, stream: int) -> None:
        """Enqueues a copy within the device."""
        self._call("cudaMemcpyAsync", target, source, size_bytes, self._within, stream)

    def clear(self, target: int, size_bytes: int, stream: int) -> None:
        """Enqueues zeros."""
        self._call("cudaMemsetAsync", target, 0, size_bytes, stream)

    def page_locked(self, size_bytes: int) -> NDArray[np.uint8]:
        """Host memory that the device copies from and to without another copy between."""
        [address] = self._call("cudaHostAlloc", size_bytes, self._bindings.cudaHostAllocDefault)
        return np.ctypeslib.as_array((c_uint8 * size_bytes).from_address(address))

    def free_page_locked(self, address: int) -> None:
        """Frees memory that `page_locked` gave. No array may be used afterwards that lies there."""
        self._call("cudaFreeHost", address)

    def _call(self, function: str, *arguments: object) -> tuple[Any, ...]:
        """What the function gives besides its error."""
        answer: tuple[Any, ...] = getattr(self._bindings, function)(*arguments)
        if answer[0]:
            _, meaning = self._bindings.cudaGetErrorString(answer[0])
            raise CudaError(function, int(answer[0]), meaning.decode())
        return answer[1:]
