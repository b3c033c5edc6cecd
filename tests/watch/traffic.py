"""Calls of known number and kind, and what a client sees of them."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from dragoman.errors import from_rpc
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions, Timings
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest, TranslateResponse, Translation
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from server.kserve.v2.inference_pb2 import ModelMetadataRequest
from server.kserve.v2.inference_pb2_grpc import GRPCInferenceServiceStub
from tests.checkpoints import flores
from tests.server_process import ServerProcess, eventually

WORKERS, MAX_ROWS, MAX_WAITING = 2, 8, 8
"""The server that this traffic is for: two contents of eight beams fill its rows, eight more its queue."""

CALLERS = 4
PHASES = ("queue", "tokenize", "encode", "decode", "detokenize")
TEXTS = [english for english, _ in flores()[200:240]]
ENDLESS = DecodingOptions(num_beams=8, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER)
"""With such a prize on length, a search goes on until it has all the tokens a target can have: for seconds."""


class Running(Protocol):
    """A call that may be left."""

    def cancel(self) -> bool: ...


@dataclass(frozen=True)
class Call:
    """A call that was answered."""

    method: str
    seconds: float
    """What the client measured: more than the server spent."""
    engine_seconds: float
    """What the server says that the slowest content took: less than the call."""
    face: str = "gRPC"
    """The API that it came by."""


@dataclass
class Seen:
    """What a client saw of some traffic."""

    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Method and gRPC status -> calls."""
    reasons: Counter[str] = field(default_factory=Counter)
    answered: list[Call] = field(default_factory=list)
    translations: list[Translation] = field(default_factory=list)
    encoded: int = 0
    encoded_tokens: int = 0
    cancelled: int = 0
    """Contents of calls that the client left."""
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    """Phase -> seconds of all contents."""

    @property
    def calls(self) -> int:
        return self.codes.total()

    @property
    def contents(self) -> int:
        """Those that were answered."""
        return len(self.translations) + self.encoded

    @property
    def source_tokens(self) -> int:
        return sum(translation.source_tokens for translation in self.translations) + self.encoded_tokens

    @property
    def target_tokens(self) -> int:
        return sum(translation.hypotheses[0].tokens for translation in self.translations)

    def answer(self, method: str, seconds: float, timings: Sequence[Timings], face: str = "gRPC") -> None:
        """A call has been answered, after so long."""
        self.codes[method, "OK"] += 1
        self.answered.append(Call(method, seconds, max(_seconds(each.total) for each in timings), face))
        for phase in PHASES:
            self.phases[phase] += sum(_seconds(getattr(each, phase)) for each in timings)


class Traffic:
    """A client, and what it sees. Its calls are never retried."""

    def __init__(self, channel: grpc.Channel, server: ServerProcess, post: Callable[[str, bytes], bytes]) -> None:
        """post: sends a message of Protobuf to a path of the HTTP port, and gives the answer."""
        self._post = post
        self._translation = TranslationServiceStub(channel)
        self._encoding = EncodingServiceStub(channel)
        self._kserve = GRPCInferenceServiceStub(channel)
        self._server = server
        self._lock = Lock()
        self.seen = Seen()

    def drive(self, times: int) -> Seen:
        """Makes so many calls of every kind, and waits until the server has counted them."""
        before = self._server.metrics()("dragoman_cancellations_total")
        translate, refused = self.translate, self.be_refused
        others = self.translate_by_http, self.stream, self.encode, self.describe
        kinds: Sequence[Callable[[int], None]] = (translate, *others, refused)
        with ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(lambda job: job[0](job[1]), [(kind, number) for number in range(times) for kind in kinds]))
        self.overload(times)
        eventually(self._is_idle)
        eventually(lambda: self._server.metrics()("dragoman_cancellations_total") == before + self.seen.cancelled)
        return self.seen

    def translate(self, number: int) -> None:
        """One to three contents, greedily or with four beams."""
        texts = [TEXTS[(number + offset) % len(TEXTS)] for offset in range(1 + number % 3)]
        decoding = DecodingOptions(num_beams=1 if number % 2 else 4)
        started = time.perf_counter()
        reply = self._translation.Translate(TranslateRequest(contents=texts, decoding=decoding, no_cache=True))
        seconds = time.perf_counter() - started
        with self._lock:
            self.seen.answer("Translate", seconds, [each.timings for each in reply.translations])
            self.seen.translations.extend(reply.translations)

    def translate_by_http(self, number: int) -> None:
        """Under the same name as by gRPC."""
        request = TranslateRequest(contents=[TEXTS[number % len(TEXTS)]], no_cache=True)
        started = time.perf_counter()
        answer = self._post("/dragoman.v1.TranslationService/Translate", request.SerializeToString())
        seconds = time.perf_counter() - started
        reply = TranslateResponse.FromString(answer)
        with self._lock:
            self.seen.answer("Translate", seconds, [each.timings for each in reply.translations], "HTTP")
            self.seen.translations.extend(reply.translations)

    def stream(self, number: int) -> None:
        started = time.perf_counter()
        text, greedy = TEXTS[number % len(TEXTS)], DecodingOptions(num_beams=1)
        request = StreamTranslateRequest(content=text, decoding=greedy, no_cache=True)
        *_, last = self._translation.StreamTranslate(request)
        seconds = time.perf_counter() - started
        with self._lock:
            self.seen.answer("StreamTranslate", seconds, [last.translation.timings])
            self.seen.translations.append(last.translation)

    def encode(self, number: int) -> None:
        started = time.perf_counter()
        reply = self._encoding.Encode(EncodeRequest(contents=[TEXTS[number % len(TEXTS)]]))
        seconds = time.perf_counter() - started
        with self._lock:
            self.seen.answer("Encode", seconds, [each.timings for each in reply.embeddings])
            self.seen.encoded += 1
            self.seen.encoded_tokens += sum(each.source_tokens for each in reply.embeddings)

    def describe(self, number: int) -> None:
        """By another face, and without the engine."""
        started = time.perf_counter()
        self._kserve.ModelMetadata(ModelMetadataRequest(name="en-pt"))
        seconds = time.perf_counter() - started
        with self._lock:
            self.seen.codes["ModelMetadata", "OK"] += 1
            self.seen.answered.append(Call("ModelMetadata", seconds, 0.0, "KServe"))

    def be_refused(self, number: int) -> None:
        """There is nothing to translate."""
        self._fail(TranslateRequest(contents=[" " * (1 + number)]))

    def overload(self, times: int) -> None:
        """Fills rows and queue, is refused so many times, and leaves."""
        metrics = self._server.metrics
        streams = [
            self._translation.StreamTranslate(StreamTranslateRequest(content=text, decoding=ENDLESS, no_cache=True))
            for text in TEXTS[:WORKERS]
        ]
        eventually(lambda: metrics()("dragoman_rows_live") == WORKERS * MAX_ROWS)
        many = TranslateRequest(contents=TEXTS[:MAX_WAITING], decoding=ENDLESS, no_cache=True)
        waiting = self._translation.Translate.future(many)
        eventually(lambda: metrics()("dragoman_requests_waiting") == MAX_WAITING)
        for _ in range(times):
            self._fail(TranslateRequest(contents=["A cat."]))
        self._leave("Translate", [waiting], MAX_WAITING)
        self._leave("StreamTranslate", streams, WORKERS)

    def _fail(self, request: TranslateRequest) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            self._translation.Translate(request)
        refusal = from_rpc(caught.value)
        with self._lock:
            self.seen.codes["Translate", refusal.code.name] += 1
            self.seen.reasons[refusal.reason] += 1

    def _leave(self, method: str, calls: Iterable[Running], contents: int) -> None:
        for call in calls:
            assert call.cancel()
            self.seen.codes[method, "CANCELLED"] += 1
        self.seen.cancelled += contents

    def _is_idle(self) -> bool:
        metrics = self._server.metrics()
        return not any(map(metrics, ("dragoman_rpc_in_flight", "dragoman_rows_live", "dragoman_requests_waiting")))


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
