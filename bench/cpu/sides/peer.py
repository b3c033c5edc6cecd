"""`python -m bench.cpu.sides.peer`: CTranslate2 behind our own API and a dynamic batcher, to compare like with like.

The batcher is what CTranslate2's users write for themselves: wait until 32 texts are there, or for 5 ms, then translate
them as one batch. Each of the two workers takes one batch at a time.
"""

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

import grpc
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from bench.cpu.sides.ctranslate2 import ComputeType, Ctranslate2
from bench.cpu.work import WORKERS
from dragoman.v1 import translation_pb2, translation_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

MAX_BATCH = 32
MAX_DELAY_S = 0.005


@dataclass(frozen=True)
class Waiting:
    """A text in the batcher."""

    pieces: list[str]
    answer: asyncio.Future[str]


class Batcher:
    """Collects texts into batches, and keeps both workers busy with one each."""

    def __init__(self, translator: Ctranslate2) -> None:
        self._translator = translator
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(WORKERS)

    async def translate(self, text: str) -> str:
        """One text, in whatever batch it comes to be."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Waiting(self._translator.tokenize(text), answer))
        return await answer

    async def run(self) -> None:
        """Translates batches until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(WORKERS):
                workers.create_task(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            sources = [waiting.pieces for waiting in batch]
            targets = await loop.run_in_executor(
                self._threads, self._translator.translate_pieces, sources, 1, MAX_BATCH
            )
            for waiting, pieces in zip(batch, targets, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(self._translator.detokenize(pieces))

    async def _collect(self) -> list[Waiting]:
        batch = [await self._queue.get()]
        try:
            async with asyncio.timeout(MAX_DELAY_S):
                while len(batch) < MAX_BATCH:
                    batch.append(await self._queue.get())
        except TimeoutError:
            pass
        return batch


class PeerService(translation_pb2_grpc.TranslationServiceServicer):
    """Translate, greedily."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher

    async def Translate(
        self,
        request: translation_pb2.TranslateRequest,
        context: object,
    ) -> translation_pb2.TranslateResponse:
        texts = await asyncio.gather(*(self._batcher.translate(text) for text in request.contents))
        translations = [
            translation_pb2.Translation(hypotheses=[translation_pb2.Hypothesis(text=text)]) for text in texts
        ]
        return translation_pb2.TranslateResponse(translations=translations)

    async def StreamTranslate(
        self, request: translation_pb2.StreamTranslateRequest, context: object
    ) -> AsyncIterator[translation_pb2.StreamTranslateResponse]:
        """The whole text at once: CTranslate2 cannot stream a batch."""
        yield translation_pb2.StreamTranslateResponse(text_delta=await self._batcher.translate(request.content))

    async def TranslateAndEncode(self, request: object, context: Context) -> NoReturn:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "nobody measures it")

    async def TranslateDocument(
        self, request: object, context: Context
    ) -> AsyncIterator[translation_pb2.TranslateDocumentResponse]:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "CTranslate2 has none")
        yield translation_pb2.TranslateDocumentResponse()  # never: but the method is a stream

    async def Score(self, request: object, context: Context) -> NoReturn:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "what CTranslate2 has for it is measured without a server")


async def serve(checkpoint: Path, folder: Path, compute_type: ComputeType, port: int) -> None:
    """Serves until SIGTERM."""
    batcher = Batcher(Ctranslate2(checkpoint, folder, compute_type))
    server = grpc.aio.server()
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(PeerService(batcher), server)
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    work = asyncio.create_task(batcher.run())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    work.cancel()
    await server.stop(None)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--compute-type", choices=get_args(ComputeType), default="float32")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--metrics-port", type=int, help="taken, so that both servers start alike; there are no metrics"
    )
    parser.add_argument("--no-http", action="store_true", help="taken for the same reason; there is no HTTP")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.checkpoint, arguments.folder, arguments.compute_type, arguments.port))


if __name__ == "__main__":
    main()
