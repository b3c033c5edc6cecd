"""server.grpc.rpc over real gRPC: streams of requests whose clients take their time between two of them."""

import asyncio
import signal
from pathlib import Path
from typing import Any, cast

import grpc

from dragoman.v1.encoding_pb2 import EncodeRequest, StreamEncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from server.traffic.bounds import MOST_MESSAGES, PAUSES
from tests.fakes import WAIT_S
from tests.server_process import server_process
from tests.serving import TRANSLATE, Serving, refused, serving, texts

ZOO = Path("models/zoo/en-pt-int8")
FOR_EVER_S = 10**6


class Stream:
    """Of requests, each after the answer to the one before."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call: Any = cast(Any, EncodingServiceStub(channel)).StreamEncode(timeout=WAIT_S)

    async def ask(self) -> int:
        """Vectors that a request is answered with."""
        await self.call.write(StreamEncodeRequest(request=EncodeRequest(contents=["A cat."])))
        return len((await self.call.read()).response.embeddings)

    async def end(self) -> object:
        """What comes after its last request."""
        await self.call.done_writing()
        return await self.call.read()


async def paused(server: Serving, count: int) -> list[Stream]:
    """So many, one after the other, that were answered once."""
    streams = []
    for _ in range(count):
        streams.append(stream := Stream(server.channel))
        assert await stream.ask() == 1
    return streams


async def test_a_stream_may_pause_for_longer_than_a_request_may_take() -> None:
    async with serving(request_timeout_s=1.0) as server:
        streams = await paused(server, PAUSES * MOST_MESSAGES)
        silent = cast(Any, server.channel).stream_unary(f"/{TRANSLATE}")(timeout=WAIT_S)
        assert (await refused(silent)).info.reason == "REQUEST_STALLED"
        assert [await stream.ask() for stream in streams] == [1] * len(streams)
        assert [await stream.end() for stream in streams] == [grpc.aio.EOF] * len(streams)
        assert not server.metric("dragoman_refusals_total", reason="STREAM_PAUSED")


async def test_streams_that_pause_keep_nobody_out() -> None:
    async with serving() as server:
        streams = await paused(server, PAUSES * MOST_MESSAGES)
        assert await texts(server, "A cat.") == ["A cat."]
        for stream in streams:
            stream.call.cancel()


async def test_of_too_many_that_pause_the_one_that_did_for_the_longest_ends() -> None:
    async with serving() as server:
        first, *others = await paused(server, PAUSES * MOST_MESSAGES + 1)
        told = await refused(first.call.read())
        assert (told.code, told.info.reason) == (grpc.StatusCode.ABORTED, "STREAM_PAUSED")
        assert dict(told.info.metadata) == {"connection_idle_s": "300.0", "max_paused": str(PAUSES * MOST_MESSAGES)}
        assert [await stream.ask() for stream in others] == [1] * len(others)
        for stream in others:
            stream.call.cancel()


async def test_a_server_that_drains_does_not_wait_for_streams_that_pause() -> None:
    flags = "--grace-period-s", FOR_EVER_S
    with server_process(ZOO, *flags) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            stream = Stream(channel)
            assert await stream.ask() == 1
            server.process.send_signal(signal.SIGTERM)
            told = await refused(stream.call.read())
            assert (told.code, told.info.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert await asyncio.to_thread(server.process.wait, WAIT_S) == 0
