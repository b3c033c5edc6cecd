"""`python -m tests.hostile.by_hand.growth`: by how much a server's memory grows over a million short calls.

Half of the calls repeat a text that was asked before. Growth is that of the later half of the readings: at first a
process fills its caches.
"""

import argparse
import asyncio
import random

import grpc
from grpc import aio

from bench.soak.report import growth
from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.hostile.by_hand.connections import MEGABYTE, ZOO, resident_bytes
from tests.server_process import ServerProcess, server_process

TOGETHER = 32
READINGS = 40
DECODING = DecodingOptions(max_new_tokens=4)


async def measured(server: ServerProcess, calls: int) -> list[tuple[float, float]]:
    """How many calls were made, and what was resident then, in MB."""
    points, numbers = list[tuple[float, float]](), iter(range(calls))

    async def call(stub: TranslationServiceStub, draw: random.Random) -> None:
        for number in numbers:
            asked = number if draw.random() < 0.5 else draw.randrange(number + 1)
            request = TranslateRequest(contents=[f"The {asked} cats are in the house."], decoding=DECODING)
            try:
                answer = await stub.Translate(request)  # type: ignore[misc]  # the stub is asyncio's
                assert len(answer.translations) == 1
            except grpc.RpcError as error:  # as all are that were under way while the machine was stopped
                print(f"{number:9} calls: {error.code()}", flush=True)
            if number % (calls // READINGS) == 0:
                points.append((number, resident_bytes(server) / MEGABYTE))
                print(f"{number:9} calls: {points[-1][1]:.1f} MB", flush=True)

    async with aio.insecure_channel(server.target) as channel:
        stub = TranslationServiceStub(channel)
        await asyncio.gather(*(call(stub, random.Random(seed)) for seed in range(TOGETHER)))
    return points


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.by_hand.growth", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000, metavar="N", help="how many (default: %(default)d)")
    parser.add_argument("server", nargs="*", help="more arguments of the server, after --")
    args = parser.parse_args()
    with server_process(ZOO, *args.server) as server:
        points = asyncio.run(measured(server, args.calls))
    print(f"{args.calls} calls: {growth(points):.1f} MB more in a million of them")


if __name__ == "__main__":
    main()
