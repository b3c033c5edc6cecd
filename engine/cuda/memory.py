"""Memory of a device, and the copies between it and the host. One implementation for each kind of device."""

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.devices.cudart import CudaRuntime

ALIGNMENT = 256
"""Of every address handed out here, as of everything that CUDA allocates."""


class Transfers(Protocol):
    """Copies between host and device, in the order in which they are enqueued, and in that of the sessions' runs."""

    stream: int | None
    """The CUDA stream that sessions run on too."""
    asynchronous: bool
    """What is enqueued is done while the host does something else."""

    def staging(self, size_bytes: int) -> NDArray[np.uint8]:
        """Host memory to copy from and to."""
        ...

    def upload(self, source: NDArray[Any], target: int) -> None:
        """Enqueues a copy from staging memory to an address of the device."""
        ...

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Enqueues a copy from an address of the device to staging memory."""
        ...

    def clear(self, target: int, size_bytes: int) -> None:
        """Enqueues zeros."""
        ...

    def wait(self) -> None:
        """Returns when everything enqueued is done."""
        ...

    def new_event(self) -> int:
        """Something to remember a point of the order by."""
        ...

    def record(self, event: int) -> None:
        """Makes the event stand for everything enqueued so far."""
        ...

    def wait_for(self, event: int) -> None:
        """Returns when everything that the event stands for is done."""
        ...


class HostTransfers:
    """Of the CPU: everything is done when it is enqueued."""

    stream: int | None = None
    asynchronous = False

    def staging(self, size_bytes: int) -> NDArray[np.uint8]:
        return np.zeros(size_bytes, np.uint8)

    def upload(self, source: NDArray[Any], target: int) -> None:
        ctypes.memmove(target, source.ctypes.data, source.nbytes)

    def download(self, source: int, target: NDArray[Any]) -> None:
        ctypes.memmove(target.ctypes.data, source, target.nbytes)

    def clear(self, target: int, size_bytes: int) -> None:
        ctypes.memset(target, 0, size_bytes)

    def wait(self) -> None:
        """Nothing to wait for."""

    def new_event(self) -> int:
        return 0

    def record(self, event: int) -> None:
        """It has happened."""

    def wait_for(self, event: int) -> None:
        """It has happened."""


class CudaTransfers:
    """Of a CUDA device, on a stream of its own."""

    asynchronous = True

    def __init__(self, runtime: CudaRuntime, device: int) -> None:
        self._runtime, self._device = runtime, device
        runtime.set_device(device)
        self._stream = runtime.create_stream()
        self.stream: int | None = self._stream

    def staging(self, size_bytes: int) -> NDArray[np.uint8]:
        self._runtime.set_device(self._device)
        return self._runtime.page_locked(size_bytes)

    def upload(self, source: NDArray[Any], target: int) -> None:
        # The first thing that a thread enqueues: else it would open a context on device 0 too.
        self._runtime.set_device(self._device)
        self._runtime.upload(source, target, self._stream)

    def download(self, source: int, target: NDArray[Any]) -> None:
        self._runtime.download(source, target, self._stream)

    def clear(self, target: int, size_bytes: int) -> None:
        self._runtime.set_device(self._device)
        self._runtime.clear(target, size_bytes, self._stream)

    def wait(self) -> None:
        self._runtime.wait(self._stream)

    def new_event(self) -> int:
        self._runtime.set_device(self._device)
        return self._runtime.create_event()

    def record(self, event: int) -> None:
        self._runtime.record(event, self._stream)

    def wait_for(self, event: int) -> None:
        self._runtime.wait_for(event)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory, given back with the last reference to it."""

    value: ort.OrtValue
    address: int
    size_bytes: int


def allocate(session: ort.InferenceSession, device_type: str, device_id: int, size_bytes: int) -> Buffer:
    """Uninitialised memory from the arena of a session, whose limit counts it."""
    value = session.create_ortvalue_from_shape_and_type([size_bytes + ALIGNMENT], np.uint8, device_type, device_id)
    return Buffer(value, -(-value.data_ptr() // ALIGNMENT) * ALIGNMENT, size_bytes)


class Outbox:
    """Small arrays on their way to the device: a block of staging memory, and its image on the device.

    An array keeps its place until `empty`, which may be called when everything enqueued is done.
    """

    def __init__(self, transfers: Transfers, buffer: Buffer) -> None:
        self._transfers, self._buffer = transfers, buffer
        self._staging = transfers.staging(buffer.size_bytes)
        self._used = 0

    def send(self, array: NDArray[Any]) -> int:
        """Enqueues the copy of an array. Returns its address on the device."""
        staged = self._stage(np.ascontiguousarray(array).view(np.uint8).reshape(-1))
        address = self._buffer.address + (staged.ctypes.data - self._staging.ctypes.data)
        self._transfers.upload(staged, address)
        return address

    def send_to(self, array: NDArray[Any], target: int) -> None:
        """Enqueues the copy of an array of any size to an address of the device."""
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        for first in range(0, len(data), len(self._staging)):
            self._transfers.upload(self._stage(data[first : first + len(self._staging)]), target + first)

    def _stage(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Puts bytes into staging memory, where nothing needs that place any more."""
        if self._used + len(data) > len(self._staging):
            self._transfers.wait()
            self.empty()
        staged = self._staging[self._used : self._used + len(data)]
        staged[:] = data
        self._used = -(-(self._used + len(data)) // ALIGNMENT) * ALIGNMENT
        return staged

    def empty(self) -> None:
        """Gives all places back."""
        self._used = 0
