"""The few functions of the CUDA runtime that ONNX Runtime's Python package does not offer, called by ctypes.

A stream that all sessions share, copies that are enqueued on it, page-locked memory, and facts about the device.
"""

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint8, c_void_p, create_string_buffer
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

LIBRARY = "libcudart.so.13"
"""Of the CUDA major version that onnxruntime-gpu 1.31 is built for."""

# Values of cudaMemcpyKind, cudaDeviceAttr and of flags of streams and events: driver_types.h.
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
NON_BLOCKING = 1
WITHOUT_TIMING = 2
PROPERTIES_BYTES = 1 << 14
"""More than any version's cudaDeviceProp, which is about 1 kB."""

SIGNATURES: dict[str, list[Any]] = {
    "cudaDriverGetVersion": [c_void_p],
    "cudaGetDeviceCount": [c_void_p],
    "cudaSetDevice": [c_int],
    "cudaDeviceGetAttribute": [c_void_p, c_int, c_int],
    "cudaGetDeviceProperties": [c_void_p, c_int],
    "cudaMemGetInfo": [c_void_p, c_void_p],
    "cudaStreamCreateWithFlags": [c_void_p, c_uint],
    "cudaStreamSynchronize": [c_void_p],
    "cudaEventCreateWithFlags": [c_void_p, c_uint],
    "cudaEventRecord": [c_void_p, c_void_p],
    "cudaEventSynchronize": [c_void_p],
    "cudaMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "cudaMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
    "cudaHostAlloc": [c_void_p, c_size_t, c_uint],
    "cudaFreeHost": [c_void_p],
}
"""Parameters of every function used. All return a cudaError_t."""


class CudaError(Exception):
    """A CUDA function failed. The message is CUDA's own."""

    def __init__(self, function: str, code: int, meaning: str) -> None:
        super().__init__(f"{function}: {meaning} (CUDA error {code})")
        self.code = code


class CudaRuntime:
    """The loaded library. Every method raises CudaError."""

    def __init__(self, library: Any) -> None:
        """`library`: what `ctypes.CDLL(LIBRARY)` gives."""
        self._library = library
        for name, parameters in SIGNATURES.items():
            getattr(library, name).argtypes = parameters
        library.cudaGetErrorString.restype = c_char_p

    @classmethod
    def load(cls) -> "CudaRuntime":
        """Raises OSError where the library is not found."""
        return cls(ctypes.CDLL(LIBRARY))

    def driver_version(self) -> tuple[int, int]:
        """The newest CUDA version that the driver supports, (0, 0) without a driver."""
        version = self._number("cudaDriverGetVersion")
        return version // 1000, version % 1000 // 10

    def device_count(self) -> int:
        return self._number("cudaGetDeviceCount")

    def compute_capability(self, device: int) -> tuple[int, int]:
        major, minor = (
            self._number("cudaDeviceGetAttribute", attribute, device)
            for attribute in (CAPABILITY_MAJOR, CAPABILITY_MINOR)
        )
        return major, minor

    def device_name(self, device: int) -> str:
        properties = create_string_buffer(PROPERTIES_BYTES)
        self._call("cudaGetDeviceProperties", properties, device)
        return properties.value.decode(errors="replace")  # cudaDeviceProp begins with `char name[256]`

    def set_device(self, device: int) -> None:
        """Makes it the calling thread's device."""
        self._call("cudaSetDevice", device)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the thread's device."""
        free, total = c_size_t(), c_size_t()
        self._call("cudaMemGetInfo", byref(free), byref(total))
        return free.value, total.value

    def create_stream(self) -> int:
        """A stream that the default stream does not wait for."""
        stream = c_void_p()
        self._call("cudaStreamCreateWithFlags", byref(stream), NON_BLOCKING)
        return cast(int, stream.value)

    def wait(self, stream: int) -> None:
        """Returns when everything on the stream is done. Other Python threads run meanwhile."""
        self._call("cudaStreamSynchronize", stream)

    def create_event(self) -> int:
        event = c_void_p()
        self._call("cudaEventCreateWithFlags", byref(event), WITHOUT_TIMING)
        return cast(int, event.value)

    def record(self, event: int, stream: int) -> None:
        """Makes the event stand for everything on the stream so far."""
        self._call("cudaEventRecord", event, stream)

    def wait_for(self, event: int) -> None:
        """Returns when what the event stands for is done. Other Python threads run meanwhile."""
        self._call("cudaEventSynchronize", event)

    def upload(self, source: NDArray[Any], target: int, stream: int) -> None:
        """Enqueues a copy to the device. `source` is page-locked, contiguous, and left alone until it is done."""
        self._call("cudaMemcpyAsync", target, source.ctypes.data, source.nbytes, HOST_TO_DEVICE, stream)

    def download(self, source: int, target: NDArray[Any], stream: int) -> None:
        """Enqueues a copy from the device. `target` is page-locked and contiguous."""
        self._call("cudaMemcpyAsync", target.ctypes.data, source, target.nbytes, DEVICE_TO_HOST, stream)

    def clear(self, target: int, size_bytes: int, stream: int) -> None:
        """Enqueues zeros."""
        self._call("cudaMemsetAsync", target, 0, size_bytes, stream)

    def page_locked(self, size_bytes: int) -> NDArray[np.uint8]:
        """Host memory that the device copies from and to without another copy between. Never freed."""
        pointer = c_void_p()
        self._call("cudaHostAlloc", byref(pointer), size_bytes, 0)
        return np.ctypeslib.as_array((c_uint8 * size_bytes).from_address(cast(int, pointer.value)))

    def _number(self, function: str, *arguments: int) -> int:
        number = c_int()
        self._call(function, byref(number), *arguments)
        return number.value

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            raise CudaError(function, code, self._library.cudaGetErrorString(code).decode())
