"""What strangers send to a server to take up its memory, for as long as it takes."""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from bench.soak.http2 import DATA, END_STREAM, FRAME_BYTES, WINDOW_SIZE, Connection, frame, message
from dragoman.quickstart import HOST
from tests.hostile.connections.sender import Sender

TRANSLATE = "/dragoman.v1.TranslationService/Translate"
LIST_MODELS = "/dragoman.v1.ModelService/ListModels"
WATCH = "/grpc.health.v1.Health/Watch"
PAUSE_S = 0.02
"""Between an attacker's looks at his connections: he would otherwise take a core of those that the server has here."""


def all_but_finished(
    port: int,
    connections: int,
    streams: int,
    size: int,
    over: Callable[[], bool],
    source: str = HOST,
    method: str = TRANSLATE,
    before: bytes = b"",
) -> None:
    """Messages of which all comes but the last byte, by those who heed the windows; others instead of those refused.

    before: whole messages that each call begins with
    """
    piece = bytes(FRAME_BYTES)
    with ExitStack() as opened:
        senders = [opened.enter_context(Sender(port, source=source)) for _ in range(connections)]
        left: list[dict[int, int]] = [{} for _ in senders]
        while not over():
            time.sleep(PAUSE_S)
            for sender, of in zip(senders, left, strict=True):
                with suppress(OSError):
                    while len(sender.open) < streams:
                        number = sender.begin(method)
                        of[number] = size - 1
                        sender.offer(number, before + message(b"", size=size))
                    sender.receive()
                    for number in sender.open:
                        while taken := sender.offer(number, piece[: of[number]]):
                            of[number] -= taken


def unread(
    port: int, calls: int, method: str, request: bytes = b"", connections: int = 4, source: str = HOST
) -> ExitStack:
    """Calls whose answers nobody reads, on connections that are open until the stack is closed."""
    with ExitStack() as opened:
        senders = [opened.enter_context(Sender(port, {WINDOW_SIZE: 0}, source)) for _ in range(connections)]
        with suppress(OSError):  # the server has had enough
            for number in range(calls):
                sender = senders[number % connections]
                stream = sender.begin(method)
                sender.offer(stream, message(request))
                sender.send_frames(frame(DATA, END_STREAM, stream))
        return opened.pop_all()


def streams(port: int, connections: int, each: int, source: str = HOST) -> ExitStack:
    """Calls that send no request, as fast as they can be begun."""
    with ExitStack() as opened:
        for _ in range(connections):
            connection = opened.enter_context(Connection(port, source=source))
            with suppress(OSError):
                for _ in range(each):
                    connection.begin(TRANSLATE)
        return opened.pop_all()


def seconds(most: float) -> Callable[[], bool]:
    """Whether so many have passed."""
    ends_s = time.monotonic() + most
    return lambda: time.monotonic() > ends_s
