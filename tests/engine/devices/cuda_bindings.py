"""`cuda.bindings.runtime` as tests want it: devices that are not there, and a list of what was not given back."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

GIB = 1 << 30
STREAM, FIRST_EVENT = 77, 500
NO_DEVICE, INVALID_HANDLE = 100, 400

Answer = tuple[Any, ...]
"""An error, and what a function gives besides."""
Address = int | np.ndarray


@dataclass
class FakeBindings:
    """CUDA, as far as `CudaRuntime` calls it."""

    driver: int = 13000
    devices: int = 1
    capability: tuple[int, int] = (9, 0)
    free: int = 70 * GIB
    total: int = 80 * GIB
    late: bool = False
    """Copies are made when they are waited for, as a device may."""
    held: dict[int, Any] = field(default_factory=dict)
    """Streams, events and page-locked memory that were not given back, by handle or address."""
    enqueued: list[Callable[[], Any]] = field(default_factory=list)
    recorded: dict[int, int] = field(default_factory=dict)
    """How many of the enqueued copies each event stands for."""

    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2, cudaMemcpyDeviceToDevice=3)
    cudaDeviceAttr = SimpleNamespace(cudaDevAttrComputeCapabilityMajor=75, cudaDevAttrComputeCapabilityMinor=76)
    cudaStreamNonBlocking, cudaEventDisableTiming, cudaHostAllocDefault = 1, 2, 0

    def cudaGetErrorString(self, error: int) -> Answer:
        return 0, b"no CUDA-capable device is detected" if error == NO_DEVICE else b"invalid resource handle"

    def cudaDriverGetVersion(self) -> Answer:
        return 0, self.driver

    def cudaGetDeviceCount(self) -> Answer:
        return 0, self.devices

    def cudaSetDevice(self, device: int) -> Answer:
        return (0,)

    def cudaDeviceGetAttribute(self, attribute: int, device: int) -> Answer:
        return 0, self.capability[attribute - 75]

    def cudaGetDeviceProperties(self, device: int) -> Answer:
        return 0, SimpleNamespace(name=b"Some GPU")

    def cudaMemGetInfo(self) -> Answer:
        return 0, self.free, self.total

    def cudaStreamCreateWithFlags(self, flags: int) -> Answer:
        assert flags == self.cudaStreamNonBlocking, "it must not wait for the default stream"
        self.held[STREAM] = "stream"
        return 0, STREAM

    def cudaStreamDestroy(self, stream: int) -> Answer:
        return self._give_back(stream)

    def cudaStreamSynchronize(self, stream: int) -> Answer:
        self._make(len(self.enqueued))
        return self._with(stream)

    def cudaEventCreateWithFlags(self, flags: int) -> Answer:
        assert flags == self.cudaEventDisableTiming
        event = FIRST_EVENT + len(self.recorded)
        self.held[event], self.recorded[event] = "event", 0
        return 0, event

    def cudaEventDestroy(self, event: int) -> Answer:
        return self._give_back(event)

    def cudaEventRecord(self, event: int, stream: int) -> Answer:
        self.recorded[event] = len(self.enqueued)
        return self._with(event, stream)

    def cudaEventSynchronize(self, event: int) -> Answer:
        self._make(self.recorded[event])
        return self._with(event)

    def cudaMemcpyAsync(self, target: Address, source: Address, size: int, kind: int, stream: int) -> Answer:
        kinds = self.cudaMemcpyKind
        on_host = {kinds.cudaMemcpyHostToDevice: [source], kinds.cudaMemcpyDeviceToHost: [target]}.get(kind, [])
        arrays = [place for place in (source, target) if isinstance(place, np.ndarray)]
        assert list(map(id, arrays)) == list(map(id, on_host)), "the other way round"
        return self._enqueue(stream, lambda: ctypes.memmove(_address(target), _address(source), size))

    def cudaMemsetAsync(self, target: int, value: int, size: int, stream: int) -> Answer:
        return self._enqueue(stream, lambda: ctypes.memset(target, value, size))

    def cudaHostAlloc(self, size: int, flags: int) -> Answer:
        memory = ctypes.create_string_buffer(size)
        self.held[ctypes.addressof(memory)] = memory
        return 0, ctypes.addressof(memory)

    def cudaFreeHost(self, address: int) -> Answer:
        return self._give_back(address)

    def _enqueue(self, stream: int, copy: Callable[[], Any]) -> Answer:
        self.enqueued.append(copy)
        if not self.late:
            self._make(len(self.enqueued))
        return self._with(stream)

    def _make(self, copies: int) -> None:
        for copy in self.enqueued[:copies]:
            copy()
        del self.enqueued[:copies]
        self.recorded = {event: max(0, count - copies) for event, count in self.recorded.items()}

    def _with(self, *handles: int) -> Answer:
        return (0 if all(handle in self.held for handle in handles) else INVALID_HANDLE,)

    def _give_back(self, handle: int) -> Answer:
        return (0 if self.held.pop(handle, None) is not None else INVALID_HANDLE,)


def _address(place: Address) -> int:
    return place.ctypes.data if isinstance(place, np.ndarray) else place
