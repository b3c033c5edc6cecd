"""Sending messages to a server, and seeing to it that each is answered as it may be."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import grpc
import uvloop

from tests.fakes import WAIT_S
from tests.hostile.fuzz.handed import HandedChannel
from tests.hostile.fuzz.messages import METHODS, Sent
from tests.serving import Serving, refusal, serving, texts

TOGETHER = 32
"""Messages under way at a time."""
PART = 20_000
"""Messages that a server gets."""
REFUSALS = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "RESOURCE_EXHAUSTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "FAILED_PRECONDITION",
}
OVERLOADED = {"OVERLOADED", "TOO_MANY_CALLS", "WOULD_BE_LATE"}
LATE = "sent once more"
LOOK_S, STOPPED_S = 0.25, 2.0
"""How often the event loop is seen to, and how late that is if the process has had no turn."""


class Stops:
    """Counts how often the process had no turn for some seconds: whatever has a time limit is late then."""

    def __init__(self) -> None:
        self.count = 0

    async def watch(self) -> None:
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(LOOK_S)
            self.count += time.monotonic() - before_s > STOPPED_S


async def sent(*messages: bytes) -> AsyncIterator[bytes]:
    for message in messages:
        yield message


async def answer(channel: Any, message: Sent) -> str:
    """The reason of a refusal, or OK. Raises TimeoutError; AssertionError where it is none that may be given."""
    method = getattr(channel, message.kind)(message.path)
    try:
        if message.kind == "unary_unary":
            await method(message.data, timeout=WAIT_S)
        else:
            data = sent(message.data) if message.kind == "stream_stream" else message.data
            async for _ in method(data, timeout=WAIT_S):
                pass
    except TimeoutError as error:
        raise TimeoutError(f"seed {message.seed}, {message.path}: no answer within {WAIT_S:g} s") from error
    except grpc.aio.AioRpcError as error:
        told = f"seed {message.seed}, {message.path}: {error.code().name} {error.details()}"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise TimeoutError(told) from error
        if error.code() is grpc.StatusCode.NOT_FOUND and message.path.startswith("/grpc."):
            return "UNKNOWN_SERVICE"  # by the protocol of health, without details
        try:
            reason = refusal(error).info.reason
        except KeyError:
            raise AssertionError(f"{told}: without details") from None
        if reason == "REQUEST_STALLED":
            raise TimeoutError(told) from error
        assert error.code().name in REFUSALS or reason in OVERLOADED, told
        return reason
    return "OK"


async def send_all(channel: Any, first: int, messages: int) -> Counter[str]:
    """Sends messages of seeds from `first` on. Returns how many were answered with what.

    channel: one of gRPC, or a HandedChannel
    """
    told, seeds, stops = Counter[str](), iter(range(first, first + messages)), Stops()

    async def send() -> None:
        for seed in seeds:
            told.update(await answered(channel, Sent.of(seed), stops))

    watching = asyncio.create_task(stops.watch())
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TOGETHER):
                tasks.create_task(send())
    finally:
        watching.cancel()
    return told


async def answered(channel: Any, message: Sent, stops: Stops) -> list[str]:
    """What a message was answered with, and LATE for each time that it was late before.

    Raises TimeoutError if it is late twice in a process that had its turns.
    """
    late, had_its_turns = list[str](), 0
    while True:
        before = stops.count
        try:
            return [await answer(channel, message), *late]
        except TimeoutError:
            had_its_turns += stops.count == before
            if had_its_turns > 1:
                raise
            late.append(LATE)


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


async def handlers(server: Serving) -> HandedChannel:
    """Those of every method, each of which is called by gRPC once."""
    for path, (kind, _) in METHODS.items():
        await answer(server.channel, Sent(-1, path, kind, b""))
    return HandedChannel(server.interceptor)


async def fuzz(first: int, messages: int, handed: bool = False) -> Counter[str]:
    """Serves, sends messages, and sees that nothing was logged, that nothing is left, and that it still translates.

    handed: to its handlers, without gRPC
    """
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        async with serving(workers=2, max_waiting=1024) as server:
            channel = await handlers(server) if handed else server.channel
            told = await send_all(channel, first, messages)
            assert await texts(server, "A cat.") == ["A cat."]
            assert server.runner.idle and not server.calls.running
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.told, errors.told[:5]
    assert told.total() - told[LATE] == messages
    return told


def fuzz_part(handed: bool, first: int, messages: int) -> Counter[str]:
    """On a server of its own."""
    return uvloop.run(fuzz(first, messages, handed))


def fuzz_shared(first: int, messages: int, processes: int, handed: bool) -> Iterator[tuple[range, Counter[str]]]:
    """As `fuzz`, in several processes: part by part, in order. Raises BrokenProcessPool where one crashes."""
    seeds = range(first, first + messages)
    parts = [seeds[start : start + PART] for start in range(0, messages, PART)]
    with ProcessPoolExecutor(processes) as pool:
        yield from zip(
            parts, pool.map(partial(fuzz_part, handed), [part.start for part in parts], map(len, parts)), strict=True
        )
