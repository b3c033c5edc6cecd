"""`python -m server` as a process refuses every bad input by name, and a call beside it gets what it would alone."""

import math
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from dragoman.errors import from_rpc
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from dragoman.v1.encoding_pb2 import POOLING_NONE, EncodeRequest
from dragoman.v1.model_pb2 import GetModelRequest
from dragoman.v1.translation_pb2 import StreamTranslateRequest, StreamTranslateResponse, TranslateRequest, Translation
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from models.package.folder import Package
from tests.checkpoints import flores
from tests.server_process import ServerProcess, server_process

pytestmark = pytest.mark.timeout(600)

INVALID = grpc.StatusCode.INVALID_ARGUMENT
TRANSLATE, STREAM, ENCODE, GET_MODEL = (
    f"/dragoman.v1.{name}"
    for name in (
        "TranslationService/Translate",
        "TranslationService/StreamTranslate",
        "EncodingService/Encode",
        "ModelService/GetModel",
    )
)


STREAMED = StreamTranslateRequest(
    content=flores()[200][0],
    decoding=DecodingOptions(num_beams=8, max_new_tokens=80, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER),
    no_cache=True,
)
"""Runs for 79 steps, and has its first words after a few."""


@dataclass(frozen=True)
class Bad:
    """A request that is refused."""

    method: str
    data: bytes
    reason: str
    numbers: Mapping[str, object] = field(default_factory=dict)
    """What the refusal tells beside the reason, as metadata and in its message."""
    code: grpc.StatusCode = INVALID


def bad_text(content: str, reason: str, **numbers: object) -> Bad:
    return Bad(TRANSLATE, TranslateRequest(contents=[content]).SerializeToString(), reason, numbers)


def bad_option(decoding: DecodingOptions, **numbers: object) -> Bad:
    request = TranslateRequest(contents=["A cat."], decoding=decoding)
    return Bad(TRANSLATE, request.SerializeToString(), "OPTION_OUT_OF_RANGE", numbers)


def bad_encoding(reason: str, told: Mapping[str, object], **fields: Any) -> Bad:
    return Bad(ENCODE, EncodeRequest(contents=["A cat."], **fields).SerializeToString(), reason, told)


def no_message(method: str, data: bytes) -> Bad:
    return Bad(method, data, "INVALID_MESSAGE", {"size_bytes": len(data)})


def no_model(method: str, request: TranslateRequest | EncodeRequest | GetModelRequest) -> Bad:
    numbers = {"model": "pt-en", "available": "en-pt"}
    return Bad(method, request.SerializeToString(), "MODEL_NOT_FOUND", numbers, grpc.StatusCode.NOT_FOUND)


def no_language(request: TranslateRequest, tag: str, supported: str) -> Bad:
    numbers = {"language_code": tag, "supported": supported}
    return Bad(TRANSLATE, request.SerializeToString(), "LANGUAGE_NOT_SUPPORTED", numbers)


BAD = {
    "no contents": Bad(TRANSLATE, b"", "EMPTY_CONTENTS", {"contents": 0, "min_contents": 1}),
    "too many contents": Bad(
        TRANSLATE,
        TranslateRequest(contents=["A cat."] * 257).SerializeToString(),
        "TOO_MANY_CONTENTS",
        {"contents": 257, "max_contents": 256},
    ),
    "empty string": bad_text("", "BLANK_CONTENT", characters=0),
    "only spaces": bad_text(" \t\n\u00a0", "BLANK_CONTENT", characters=4),
    "nothing to stream": Bad(STREAM, b"", "BLANK_CONTENT", {"characters": 0}),
    "nothing to encode": Bad(ENCODE, b"", "EMPTY_CONTENTS", {"contents": 0}),
    "1 MB of text": bad_text("word " * 200_000, "SOURCE_TOO_LONG", characters=1_000_000),
    "too many tokens": bad_text("cat " * 600, "SOURCE_TOO_LONG", tokens=601, max_tokens=512),
    "unknown model": no_model(TRANSLATE, TranslateRequest(contents=["A cat."], model="pt-en")),
    "unknown model to encode with": no_model(ENCODE, EncodeRequest(contents=["A cat."], model="pt-en")),
    "unknown model to get": no_model(GET_MODEL, GetModelRequest(name="pt-en")),
    "unknown source language": no_language(
        TranslateRequest(contents=["A cat."], source_language_code="xx"), "xx", "en"
    ),
    "unknown target language": no_language(
        TranslateRequest(contents=["A cat."], target_language_code="fr-CA"), "fr-CA", "pt"
    ),
    "no beams": bad_option(DecodingOptions(num_beams=0), value=0, min=1, max=16),
    "a million beams": bad_option(DecodingOptions(num_beams=10**6), value=10**6, min=1, max=16),
    "more results than beams": bad_option(DecodingOptions(num_beams=2, num_return_sequences=3), value=3, min=1, max=2),
    "more new tokens than positions": bad_option(DecodingOptions(max_new_tokens=513), value=513, min=1, max=512),
    "NaN": bad_option(DecodingOptions(length_penalty=math.nan), value=math.nan, min=-10.0, max=10.0),
    "infinity": bad_option(DecodingOptions(length_penalty=-math.inf), value=-math.inf, min=-10.0, max=10.0),
    "no dimensions": bad_encoding("OPTION_OUT_OF_RANGE", dimensions=0, told={"value": 0, "min": 1, "max": 256}),
    "more dimensions than the width": bad_encoding(
        "OPTION_OUT_OF_RANGE", dimensions=257, told={"value": 257, "min": 1, "max": 256}
    ),
    "more dimensions than two vectors have": bad_encoding(
        "OPTION_OUT_OF_RANGE", dimensions=513, poolings=[4, 5], told={"value": 513, "min": 1, "max": 512}
    ),
    "unknown pooling": bad_encoding("OPTION_OUT_OF_RANGE", poolings=[10], told={"value": 10, "min": 1, "max": 9}),
    "unspecified pooling": bad_encoding("OPTION_OUT_OF_RANGE", poolings=[0], told={"value": 0, "min": 1, "max": 9}),
    "attention without its weights": bad_encoding(
        "POOLING_NOT_SUPPORTED",
        poolings=[2, 9],
        told={"pooling": "attention", "supported": "none, cls, last, mean, max, sum, sum_sqrt, weighted_mean"},
    ),
    "tokens and attention": bad_encoding("POOLINGS_CONFLICT", poolings=[1, 9], told={"poolings": "none, attention"}),
    "attention twice": bad_encoding("POOLINGS_CONFLICT", poolings=[9, 9], told={"poolings": "attention, attention"}),
    "a pooling twice": bad_encoding("POOLINGS_CONFLICT", poolings=[4, 4], told={"poolings": "mean, mean"}),
    "tokens and more": bad_encoding("POOLINGS_CONFLICT", poolings=[1, 4], told={"poolings": "none, mean"}),
    "a task that the model has not": Bad(
        TRANSLATE,
        TranslateRequest(contents=["A cat."], prompt="summarize").SerializeToString(),
        "PROMPT_NOT_SUPPORTED",
        {"prompt": "summarize", "supported": ""},
    ),
    "unknown type": bad_encoding("OPTION_OUT_OF_RANGE", type=5, told={"value": 5, "min": 0, "max": 4}),
    "unknown truncation": bad_encoding("OPTION_OUT_OF_RANGE", truncation=3, told={"value": 3, "min": 0, "max": 2}),
    "unknown prompt": bad_encoding("PROMPT_NOT_SUPPORTED", prompt="query", told={"prompt": "query", "supported": ""}),
    "vectors over the message limit": Bad(
        ENCODE,
        EncodeRequest(contents=["cat " * 500] * 9, poolings=[POOLING_NONE]).SerializeToString(),
        "VECTORS_TOO_LARGE",
        {"size_bytes": 9 * 501 * 256 * 4, "max_message_bytes": 4 * 1024**2},
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
    "attention over the message limit": Bad(
        TRANSLATE,
        TranslateRequest(
            contents=["cat " * 200] * 9, decoding=DecodingOptions(with_attention=True, max_new_tokens=200)
        ).SerializeToString(),
        "ATTENTION_TOO_LARGE",
        {"size_bytes": 9 * 2 * 8 * (6 * 201 * 201 + 2 * 200 * 201), "max_message_bytes": 4 * 1024**2},
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
    "invalid UTF-8": no_message(TRANSLATE, b"\x0a\x05caf\xe9 "),
    "invalid UTF-8 to stream": no_message(STREAM, b"\x0a\x05caf\xe9 "),
    "half a message": no_message(ENCODE, EncodeRequest(contents=["A cat."]).SerializeToString()[:-1]),
    "message over the limit": Bad(
        TRANSLATE,
        b" " * (2 * 1024**2 + 1),
        "MESSAGE_TOO_LARGE",
        {"size_bytes": 2 * 1024**2 + 1, "max_message_bytes": 2 * 1024**2},
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
}


@pytest.fixture(scope="module")
def server(zoo_package: Package) -> Iterator[ServerProcess]:
    with server_process(zoo_package.folder) as server:
        yield server
        assert server.end(signal.SIGTERM) == 0


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as channel:
        yield channel


@pytest.fixture(scope="module")
def alone(server: ServerProcess) -> tuple[str, Translation]:
    """What the call beside the bad ones gets when there is no other."""
    with grpc.insecure_channel(server.target) as channel:
        return told(TranslationServiceStub(channel).StreamTranslate(STREAMED))


def told(events: Iterable[StreamTranslateResponse]) -> tuple[str, Translation]:
    """The text of all deltas, however many they came in, and the translation without its timings."""
    *deltas, last = events
    last.translation.ClearField("timings")
    return "".join(delta.text_delta for delta in deltas), last.translation


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_and_a_call_beside_it_untouched(
    case: str, channel: grpc.Channel, alone: tuple[str, Translation]
) -> None:
    bad = BAD[case]
    stream = TranslationServiceStub(channel).StreamTranslate(STREAMED)
    first = next(stream)  # it is running
    call: grpc.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(bad.method)
    with pytest.raises(grpc.RpcError) as caught:
        list(call(bad.data))
    refusal = from_rpc(caught.value)
    assert (refusal.code, refusal.reason) == (bad.code, bad.reason)
    for name, number in bad.numbers.items():
        assert refusal.metadata[name] == str(number)
        assert str(number) in refusal.message
    assert told([first, *stream]) == alone
