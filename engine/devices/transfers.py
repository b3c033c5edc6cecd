"""Copies between a device and the host. One implementation for each kind of device."""

import ctypes
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.devices.cudart import CudaRuntime


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
