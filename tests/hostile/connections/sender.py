"""HTTP/2 by hand, by one who heeds the server's windows."""

import struct
from collections.abc import Mapping
from contextlib import suppress

from bench.soak.http2 import (
    ACKNOWLEDGED,
    END_STREAM,
    HEADERS,
    PING,
    RESET,
    SETTINGS,
    WAIT_S,
    WINDOW_SIZE,
    Connection,
    frame,
)
from dragoman.quickstart import HOST

WINDOW_UPDATE = 8
FIRST_WINDOW = 65_535
"""Of a connection and its streams, until the server says otherwise."""


class Sender(Connection):
    """One that heeds the server's windows, and so may send much. What it is answered it drops."""

    def __init__(self, port: int, settings: Mapping[int, int] | None = None, source: str = HOST) -> None:
        super().__init__(port, settings, source)
        self._window = self._initial = FIRST_WINDOW
        self._windows: dict[int, int] = {}
        self._received = b""

    @property
    def open(self) -> list[int]:
        """Streams that the server has not ended."""
        return list(self._windows)

    def begin(self, path: str, headers: Mapping[str, str] | None = None) -> int:
        number = super().begin(path, headers)
        self._windows[number] = self._initial
        return number

    def offer(self, number: int, data: bytes) -> int:
        """Sends what the windows have room for. Gives how much that is."""
        taken = max(0, min(len(data), self._window, self._windows.get(number, 0)))
        self.send(number, data[:taken])
        self._window -= taken
        if taken:
            self._windows[number] -= taken
        return taken

    def receive(self) -> None:
        """Takes up what has come, if anything has."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while received := self._socket.recv(1 << 20):
                self._received += received
        self._socket.settimeout(WAIT_S)
        while len(self._received) >= 9 and len(self._received) >= (end := 9 + int.from_bytes(self._received[:3])):
            head, payload, self._received = self._received[:9], self._received[9:end], self._received[end:]
            self._take(head[3], head[4], int.from_bytes(head[5:]), payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(payload)
        elif kind == WINDOW_UPDATE and stream in self._windows:
            self._windows[stream] += int.from_bytes(payload)
        elif kind == SETTINGS:
            initial = dict(struct.iter_unpack(">HI", payload)).get(WINDOW_SIZE, self._initial)
            self._windows = {number: left + initial - self._initial for number, left in self._windows.items()}
            self._initial = initial
        elif kind == PING and not flags & ACKNOWLEDGED:
            self._socket.sendall(frame(PING, ACKNOWLEDGED, 0, payload))
        elif kind == RESET or (kind == HEADERS and flags & END_STREAM):
            self._windows.pop(stream, None)
