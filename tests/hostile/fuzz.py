"""`python -m tests.hostile.fuzz`: mutated messages to every method of a real server on loopback, whose decoder copies.

Every one is answered, and never with INTERNAL, UNKNOWN or a traceback in the log. One that is not is told by its seed.
One that is late, as all are of a process that was stopped for some seconds, is sent once more; that is counted.
"""

import argparse
import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.encoding_pb2 import ClassifyRequest, EncodeRequest, StreamEncodeRequest
from dragoman.v1.model_pb2 import GetModelRequest, ListModelsRequest, ReloadRequest
from dragoman.v1.translation_pb2 import (
    Candidates,
    ScoreRequest,
    StreamTranslateRequest,
    TranslateAndEncodeRequest,
    TranslateDocumentRequest,
    TranslateRequest,
)
from tests.fakes import WAIT_S
from tests.serving import Serving, refusal, serving, texts

TOGETHER = 32
"""Messages under way at a time."""
PART = 5000
"""Messages that a server gets."""
STRANGE = [
    *("\0", "\u202e\u2066abc", "e" + "\u0301" * 300, "\ufdfa" * 50, "\U0001f468\u200d\U0001f469" * 20, "\u2581" * 9),
    *(
        ">>pt<<",
        "a" * 3000,
        " " * 5000,
        "\x9b31m",
        "%s{0}\n\r",
        "<unk></s><pad>",
        "\ue000" * 40,
        "漢字" * 200,
        "A cat.",
    ),
]
NUMBERS = [0, 1, 2, 3, 4, 17, -1, 128, 129, 2**31 - 1, -(2**31)]
LENGTHS = [0.0, -0.0, 1.0, 10.0, -10.0, 10.0001, 1e38, float("nan"), float("inf"), 1e-45]
SPLICES = [b"\xff" * 9, b"\x80" * 12, b"\x0a\xff\xff\xff\x7f", b"\x0b" * 120, b"\x0c", b"\xed\xa0\x80", b"\x00"]
REFUSALS = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "RESOURCE_EXHAUSTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "FAILED_PRECONDITION",
}
OVERLOADED = {"OVERLOADED", "WOULD_BE_LATE"}
LATE = "sent once more"


def decoding(chance: random.Random) -> DecodingOptions:
    options = DecodingOptions(max_new_tokens=chance.choice([1, 2, 4, 8, 8, *NUMBERS]))
    if chance.random() < 0.4:
        options.num_beams = chance.choice(NUMBERS)
    if chance.random() < 0.4:
        options.num_return_sequences = chance.choice(NUMBERS)
    if chance.random() < 0.4:
        options.length_penalty = chance.choice(LENGTHS)
    if chance.random() < 0.4:
        options.early_stopping = chance.choice([0, 1, 2, 3, 4, -1, 99])  # type: ignore[assignment]
    if chance.random() < 0.2:
        options.return_alternatives = True
    return options


def content(chance: random.Random) -> str:
    return chance.choice(STRANGE) + chance.choice(["", " cat", chance.choice(STRANGE)])


def language(chance: random.Random) -> str:
    return chance.choice(["", "en", "pt", "pt", "pt", "pt", "pt-BR", "EN-gb", "xx", "\0", "-", "en-" + "a" * 60, "é"])


def translate(chance: random.Random) -> Message:
    return TranslateRequest(
        contents=[content(chance) for _ in range(chance.choice([0, 1, 1, 2, 3, 20]))],
        source_language_code=chance.choice(["", "", "en", language(chance)]),
        target_language_code=language(chance),
        model=chance.choice(["", "", "", "copy", "x"]),
        decoding=decoding(chance),
        labels={"a": "b", "": "\0" * 9} if chance.random() < 0.1 else {},
    )


def stream(chance: random.Random) -> Message:
    return StreamTranslateRequest(
        content=content(chance), target_language_code=language(chance), decoding=decoding(chance)
    )


def encode(chance: random.Random) -> EncodeRequest:
    return EncodeRequest(contents=[content(chance) for _ in range(chance.choice([0, 1, 2, 5]))])


def classify(chance: random.Random) -> Message:
    return ClassifyRequest(
        contents=[content(chance) for _ in range(chance.choice([0, 1, 2, 5]))],
        most_labels=chance.choice([None, *NUMBERS]),
        truncation=chance.choice([0, 1, 2, 99]),  # type: ignore[arg-type]
        grouping=chance.choice([0, 1, 2, 99]),  # type: ignore[arg-type]
    )


def stream_encode(chance: random.Random) -> Message:
    return StreamEncodeRequest(request=encode(chance))


def both(chance: random.Random) -> Message:
    return TranslateAndEncodeRequest(
        contents=[content(chance) for _ in range(chance.choice([0, 1, 2, 5]))],
        target_language_code=language(chance),
        decoding=decoding(chance),
        poolings=[chance.choice([0, 1, 4, 7, 99]) for _ in range(chance.choice([0, 1, 2]))],  # type: ignore[misc]
        dimensions=chance.choice([None, 2, *NUMBERS]),
    )


def score(chance: random.Random) -> Message:
    targets = [[content(chance) for _ in range(chance.choice([0, 1, 2, 9]))] for _ in range(chance.choice([0, 1, 2]))]
    return ScoreRequest(
        contents=[Candidates(content=content(chance), targets=given) for given in targets],
        target_language_code=language(chance),
        prompt=chance.choice([None, "", "shorten", "x"]),
    )


def document(chance: random.Random) -> Message:
    return TranslateDocumentRequest(
        document=content(chance).encode(),
        format=chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 99]),  # type: ignore[arg-type]
        target_language_code=language(chance),
        decoding=decoding(chance),
    )


def get_model(chance: random.Random) -> Message:
    return GetModelRequest(name=chance.choice(["", "copy", "x" * 900, "\0"]))


def reload(chance: random.Random) -> Message:
    return ReloadRequest(name=chance.choice(["", "copy", "x" * 900, "\0"]))


def check(chance: random.Random) -> Message:
    return HealthCheckRequest(service=chance.choice(["", "x", "dragoman.v1.TranslationService"]))


def reflect(chance: random.Random) -> Message:
    if chance.random() < 0.5:
        return ServerReflectionRequest(file_containing_symbol=content(chance))
    return ServerReflectionRequest(file_by_filename=chance.choice(["../../../etc/passwd", "dragoman/v1/model.proto"]))


METHODS: dict[str, tuple[str, Callable[[random.Random], Message]]] = {
    "/dragoman.v1.TranslationService/Translate": ("unary_unary", translate),
    "/dragoman.v1.TranslationService/StreamTranslate": ("unary_stream", stream),
    "/dragoman.v1.TranslationService/TranslateAndEncode": ("unary_unary", both),
    "/dragoman.v1.TranslationService/Score": ("unary_unary", score),
    "/dragoman.v1.EncodingService/Encode": ("unary_unary", encode),
    "/dragoman.v1.EncodingService/Classify": ("unary_unary", classify),
    "/dragoman.v1.EncodingService/StreamEncode": ("stream_stream", stream_encode),
    "/dragoman.v1.ModelService/GetModel": ("unary_unary", get_model),
    "/dragoman.v1.ModelService/ListModels": ("unary_unary", lambda chance: ListModelsRequest()),
    "/dragoman.v1.ModelService/Reload": ("unary_unary", reload),
    "/grpc.health.v1.Health/Check": ("unary_unary", check),
    "/grpc.health.v1.Health/List": ("unary_unary", lambda chance: HealthCheckRequest()),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": ("stream_stream", reflect),
    "/dragoman.v1.TranslationService/TranslateDocument": ("unary_stream", document),
}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The same message, or what some changes have left of it."""
    left = bytearray(data)
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2, 5, 30])):
        at = chance.randrange(len(left) + 1)
        change = chance.randrange(6)
        if change == 0 and at < len(left):
            left[at] ^= 1 << chance.randrange(8)
        elif change == 1:
            del left[at : at + chance.randrange(1, 9)]
        elif change == 2:
            left[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif change == 3:
            del left[at:]
        elif change == 4:
            left[at:at] = left[at : at + chance.randrange(1, 40)] * chance.choice([1, 2, 50])
        else:
            left[at:at] = chance.choice(SPLICES)
    return bytes(left)


@dataclass(frozen=True)
class Sent:
    """A message, and how it is sent."""

    seed: int
    path: str
    kind: str
    data: bytes

    @classmethod
    def of(cls, seed: int) -> "Sent":
        chance = random.Random(seed)
        path = chance.choice(list(METHODS))
        kind, make = METHODS[path]
        return cls(seed, path, kind, mutated(make(chance).SerializeToString(), chance))


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


async def send_all(server: Serving, first: int, messages: int) -> Counter[str]:
    """Sends messages of seeds from `first` on. Returns how many were answered with what."""
    told, seeds = Counter[str](), iter(range(first, first + messages))

    async def send() -> None:
        for seed in seeds:
            message = Sent.of(seed)
            try:
                told[await answer(server.channel, message)] += 1
            except TimeoutError:
                told[LATE] += 1
                told[await answer(server.channel, message)] += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(TOGETHER):
            tasks.create_task(send())
    return told


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


async def fuzz(first: int, messages: int) -> Counter[str]:
    """Serves, sends messages, and sees that nothing was logged, that nothing is left, and that it still translates."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        async with serving(workers=2, max_waiting=1024) as server:
            told = await send_all(server, first, messages)
            assert await texts(server, "A cat.") == ["A cat."]
            assert server.runner.idle
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.told, errors.told[:5]
    assert told.total() - told[LATE] == messages
    return told


def fuzz_part(first: int, messages: int) -> Counter[str]:
    """On a server of its own."""
    return asyncio.run(fuzz(first, messages))


def fuzz_shared(first: int, messages: int, processes: int) -> Iterator[tuple[range, Counter[str]]]:
    """As `fuzz`, in several processes: part by part, in order. Raises BrokenProcessPool where one crashes."""
    seeds = range(first, first + messages)
    parts = [seeds[start : start + PART] for start in range(0, messages, PART)]
    with ProcessPoolExecutor(processes) as pool:
        yield from zip(parts, pool.map(fuzz_part, [part.start for part in parts], map(len, parts)), strict=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first: the last line tells where to go on")
    parser.add_argument("--processes", type=int, default=1, help="that share them")
    given = parser.parse_args(arguments)
    told, done, began = Counter[str](), 0, time.monotonic()
    for part, ends in fuzz_shared(given.first, given.messages, given.processes):
        told.update(ends)
        done += len(part)
        rate = done / (time.monotonic() - began)
        none = "0 crashes, 0 without an answer, 0 INTERNAL"
        print(f"{done} messages, {rate:.0f} a second, seeds before {part.stop}: {none}", flush=True)
    print(f"{done} messages: {dict(told.most_common())}")


if __name__ == "__main__":
    main()
