"""Copies between a device and the host. One implementation for each kind of device."""

import ctypes
import logging
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.devices.cudart import CudaError, CudaRuntime
from engine.devices.session import Device

log = logging.getLogger(__name__)


class Transfers(Protocol):
    """Copies between host and device, in the order in which they are enqueued, and in that of the sessions' runs."""

    stream: int | None
    """The CUDA stream that sessions run on too."""
    asynchronous: bool
    """What is enqueued is done while the host does something else."""

    def staging(self, size_bytes: int) -> NDArray[np.uint8]:
        """Host memory to copy from and to, until `close`."""
        ...

    def upload(self, source: NDArray[Any], target: int) -> None:
        """Enqueues a copy from staging memory to an address of the device."""
        ...

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Enqueues a copy from an address of the device to staging memory."""
        ...

    def copy(self, source: int, target: int, size_bytes: int) -> None:
        """Enqueues a copy within the device."""
        ...

    def clear(self, target: int, size_bytes: int) -> None:
        """Enqueues zeros."""
        ...

    def wait(self) -> None:
        """Returns when everything enqueued is done."""
        ...

    def new_event(self) -> int:
        """Something to remember a point of the order by, until `close`."""
        ...

    def record(self, event: int) -> None:
        """Makes the event stand for everything enqueued so far."""
        ...

    def wait_for(self, event: int) -> None:
        """Returns when everything that the event stands for is done."""
        ...

    def settle(self) -> None:
        """Returns when nothing is under way any more, be it because it failed. Raises nothing."""
        ...

    def close(self) -> None:
        """Gives back staging memory, events and the stream, on which no session may run any more. Raises nothing."""
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

    def copy(self, source: int, target: int, size_bytes: int) -> None:
        ctypes.memmove(target, source, size_bytes)

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

    def settle(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing that is not given back with the last reference to it."""


class CudaTransfers:
    """Of a CUDA device, on a stream of its own."""

    asynchronous = True

    def __init__(self, runtime: CudaRuntime, device: int) -> None:
        self._runtime, self._device = runtime, device
        runtime.set_device(device)
        self._stream = runtime.create_stream()
        self.stream: int | None = self._stream
        self._held = ExitStack()
        self._held.callback(runtime.destroy_stream, self._stream)

    def staging(self, size_bytes: int) -> NDArray[np.uint8]:
        self._runtime.set_device(self._device)
        memory = self._runtime.page_locked(size_bytes)
        self._held.callback(self._runtime.free_page_locked, memory.ctypes.data)
        return memory

    def upload(self, source: NDArray[Any], target: int) -> None:
        # The first thing that a thread enqueues: else it would open a context on device 0 too.
        self._runtime.set_device(self._device)
        self._runtime.upload(source, target, self._stream)

    def download(self, source: int, target: NDArray[Any]) -> None:
        self._runtime.download(source, target, self._stream)

    def copy(self, source: int, target: int, size_bytes: int) -> None:
        self._runtime.copy(source, target, size_bytes, self._stream)

    def clear(self, target: int, size_bytes: int) -> None:
        self._runtime.set_device(self._device)
        self._runtime.clear(target, size_bytes, self._stream)

    def wait(self) -> None:
        self._runtime.wait(self._stream)

    def new_event(self) -> int:
        self._runtime.set_device(self._device)
        event = self._runtime.create_event()
        self._held.callback(self._runtime.destroy_event, event)
        return event

    def record(self, event: int) -> None:
        self._runtime.record(event, self._stream)

    def wait_for(self, event: int) -> None:
        self._runtime.wait_for(event)

    def settle(self) -> None:
        try:
            self._runtime.set_device(self._device)
            self._runtime.wait(self._stream)
        except CudaError as error:
            log.warning("what the device was doing has failed: %s", error)

    def close(self) -> None:
        if self.stream is None:
            return
        self.settle()
        self.stream = None
        try:
            self._held.close()
        except CudaError as error:  # after some errors a process can give nothing back, but by its end
            log.warning("the device does not take everything back: %s", error)


def open_transfers(device: Device) -> Transfers:
    """Those of a device. Raises ImportError and CudaError."""
    return CudaTransfers(CudaRuntime.load(), device.index) if device.kind == "cuda" else HostTransfers()
