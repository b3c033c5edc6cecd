"""HTTP/2 by hand, to do what polite clients do not: no window, no end, no reading."""

import socket
import struct
from collections.abc import Mapping
from typing import Self

from dragoman.quickstart import HOST

WAIT_S = 60.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING = 0, 1, 3, 4, 6
ACKNOWLEDGED, END_STREAM, END_HEADERS = 1, 1, 4
CANCEL = 8
"""The code of a reset."""
WINDOW_SIZE = 4
"""The setting: how much a stream may be sent before its reader asks for more."""
FRAME_BYTES = 16 * 1024


class Connection:
    """One that reads nothing. Its methods raise OSError once the server has closed it."""

    def __init__(self, port: int, settings: Mapping[int, int] | None = None, source: str = HOST) -> None:
        """source: the address that it comes from."""
        self._socket = socket.create_connection((HOST, port), WAIT_S, (source, 0))
        pairs = b"".join(struct.pack(">HI", name, value) for name, value in (settings or {}).items())
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, pairs) + frame(SETTINGS, ACKNOWLEDGED, 0))
        self._next = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, path: str, headers: Mapping[str, str] | None = None) -> int:
        """Opens a stream. Gives its number."""
        number, self._next = self._next, self._next + 2
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "x",
            "te": "trailers",
            "content-type": "application/grpc",
            **(headers or {}),
        }
        block = b"".join(b"\x00" + text(name) + text(value) for name, value in fields.items())
        self._socket.sendall(frame(HEADERS, END_HEADERS, number, block))
        return number

    def send(self, number: int, data: bytes, end: bool = False) -> None:
        """Data of a stream, as it comes: windows are the sender's to heed."""
        pieces = [data[start : start + FRAME_BYTES] for start in range(0, len(data), FRAME_BYTES)]
        for index, piece in enumerate(pieces):
            last = end and index == len(pieces) - 1
            self._socket.sendall(frame(DATA, END_STREAM if last else 0, number, piece))

    def reset(self, number: int) -> None:
        """Ends a stream before its answer."""
        self._socket.sendall(frame(RESET, 0, number, struct.pack(">I", CANCEL)))

    def send_frames(self, frames: bytes) -> None:
        """As they are."""
        self._socket.sendall(frames)

    def close(self) -> None:
        self._socket.close()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value: str) -> bytes:
    """As HPACK writes a string of up to 126 characters, without Huffman's code."""
    assert len(value) < 127
    return bytes([len(value)]) + value.encode()


def message(data: bytes, size: int | None = None) -> bytes:
    """As gRPC frames it. size: what is announced instead of its length."""
    return struct.pack(">BI", 0, len(data) if size is None else size) + data
