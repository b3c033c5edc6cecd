"""`python -m bench.server.beside`: what a caller within its share waits beside one who sends anything.

One caller has one short text under way at a time, of which it wants the translation or the vector. It asks alone,
beside the other, and alone again; the ratio is of the 99th percentiles, beside over the mean of both alone. The other
keeps as many calls under way as it is told, of many texts, of wide searches without an end, and of vectors of long
texts. Server and callers share this machine.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import grpc
import uvloop
from grpc import aio

from bench.flags.values import package_at, positive, whole
from bench.measure import percentile
from bench.process import or_exit, serving
from bench.sentences import english
from bench.soak.questions import short_texts
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

ROOT = Path(__file__).parents[2]
KEY = "x-caller"
MODEST, GREEDY = [((KEY, name),) for name in ("modest", "greedy")]
ASKED = 3.0
"""Times of alone that were asked for."""
PAUSE_S = 0.02
"""Of the modest caller, between two texts."""
PATIENCE_S = 60.0
MANY, WIDE, VECTORS = 256, 24, 64
"""Contents of a call."""
ENDLESS = DecodingOptions(
    num_beams=16, num_return_sequences=16, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER, max_new_tokens=512
)
LONG_WORDS = 300
Ask = Callable[[str], Awaitable[object]]
"""One call for one text."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.beside", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt", help="what is served")
    parser.add_argument("--seconds", type=positive, default=20, help="beside the other; half of it alone, twice")
    parser.add_argument("--together", type=whole, default=20, help="calls that the other keeps under way")
    parser.add_argument("--vectors", action="store_true", help="what the modest one wants, not translations")
    parser.add_argument("server", nargs="*", help="more arguments of the server, after --")
    arguments = parser.parse_args()
    options = ["--package", str(arguments.package), "--caller-key", KEY, *arguments.server]
    with or_exit(parser), serving("server", options) as server:
        uvloop.run(measure(server.target, arguments.seconds, arguments.together, arguments.vectors))


async def measure(target: str, seconds: float, together: int, vectors: bool) -> None:
    """Says what the modest caller waits."""
    async with aio.insecure_channel(target) as channel:
        ask = asking_for_vectors(channel) if vectors else asking_for_translations(channel)
        await modest(ask, seconds / 4)  # warms up
        before = await modest(ask, seconds / 2)
        greedy = multiprocessing.get_context("spawn").Process(target=run_greedy, args=(target, together))
        greedy.start()
        try:
            await asyncio.sleep(seconds / 4)
            beside = await modest(ask, seconds)
        finally:
            greedy.kill()
            greedy.join()
        await asyncio.sleep(seconds / 4)
        after = await modest(ask, seconds / 2)
    print("| | calls | p50, ms | p99, ms |\n|---|---|---|---|")
    for name, took in ("alone before", before), ("beside", beside), ("alone after", after):
        print(f"| {name} | {len(took)} | {1e3 * percentile(took, 50):.1f} | {1e3 * percentile(took, 99):.1f} |")
    alone_s = (percentile(before, 99) + percentile(after, 99)) / 2
    print(f"\np99 beside over alone: {percentile(beside, 99) / alone_s:.1f} x, where {ASKED:g} were asked for")


def asking_for_translations(channel: aio.Channel) -> Ask:
    """By calls of the modest one."""
    translate = TranslationServiceStub(channel).Translate
    return lambda text: translate(TranslateRequest(contents=[text], no_cache=True), metadata=MODEST, timeout=PATIENCE_S)


def asking_for_vectors(channel: aio.Channel) -> Ask:
    """The same."""
    encode = EncodingServiceStub(channel).Encode
    return lambda text: encode(EncodeRequest(contents=[text]), metadata=MODEST, timeout=PATIENCE_S)


async def modest(ask: Ask, seconds: float) -> list[float]:
    """Seconds that each text took, one at a time. Raises AioRpcError where one is not answered."""
    texts, took = short_texts(250, seed=3), list[float]()
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        started_s = time.perf_counter()
        await ask(texts[len(took) % len(texts)])
        took.append(time.perf_counter() - started_s)
        await asyncio.sleep(PAUSE_S)
    return took


def run_greedy(target: str, together: int) -> None:
    """The other, in a process of its own: the modest one's clock does not wait for what it computes."""
    os.nice(19)
    uvloop.run(greedy(target, together))


async def greedy(target: str, together: int) -> None:
    """Keeps so many calls under way until the process is killed."""
    texts, draw = english(1000), random.Random(1)
    async with aio.insecure_channel(target) as channel:
        translate, encode = TranslationServiceStub(channel).Translate, EncodingServiceStub(channel).Encode

        async def call(number: int) -> None:
            while True:
                with suppress(grpc.RpcError):
                    await [many, wide, vectors][number % 3]()
                await asyncio.sleep(PAUSE_S)  # it may be refused at once

        async def many() -> None:
            request = TranslateRequest(contents=draw.sample(texts, MANY), no_cache=True)
            await translate(request, metadata=GREEDY)

        async def wide() -> None:
            request = TranslateRequest(contents=draw.sample(texts, WIDE), decoding=ENDLESS, no_cache=True)
            await translate(request, metadata=GREEDY)

        async def vectors() -> None:
            request = EncodeRequest(contents=[long(draw, texts) for _ in range(VECTORS)])
            await encode(request, metadata=GREEDY)

        await asyncio.gather(*map(call, range(together)))


def long(draw: random.Random, texts: Sequence[str]) -> str:
    """A text of so many words that vectors are made of."""
    return " ".join(" ".join(draw.sample(texts, 30)).split()[:LONG_WORDS])


if __name__ == "__main__":
    main()
