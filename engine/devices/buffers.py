"""Memory of a device."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.devices.transfers import Transfers

ALIGNMENT = 256
"""Of every address handed out here, as of everything that CUDA allocates."""


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
        self.copies = 0
        """How many were enqueued so far."""

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
        self.copies += 1
        return staged

    def empty(self) -> None:
        """Gives all places back."""
        self._used = 0
