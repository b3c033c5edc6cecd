"""The longest texts and widest searches there can be, beside attackers: memory stays within what was calculated."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.model_pb2 import ListModelsRequest
from dragoman.v1.model_pb2_grpc import ModelServiceStub
from dragoman.v1.translation_pb2 import Candidates, ScoreRequest, TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from models.package.folder import Package
from tests.hostile.by_hand.budget import most_resident_bytes
from tests.hostile.connections.attacks import LIST_MODELS, WATCH, all_but_finished, streams, unread
from tests.server_process import ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt")
LONGEST = 512
WORDS = Path("export/verification/samples.en.txt").read_text(encoding="utf-8").split()
MEGABYTES = 1200
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=["auto", "off"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with server_process(ZOO, "--memory-mb", MEGABYTES, "--kernels", request.param) as server:
        yield server


@cache
def longest_texts(count: int) -> Sequence[str]:
    """Different texts of as many tokens as a text may have."""
    tokenizer, texts = Package.open(ZOO).tokenizer(), list[str]()
    for start in range(count):
        words = 300
        while len(tokenizer.encode(" ".join(WORDS[start : start + words + 1]))) <= LONGEST:
            words += 1
        text = " ".join(WORDS[start : start + words])
        texts.append(text + " a" * (LONGEST - len(tokenizer.encode(text))))
    assert {len(tokenizer.encode(text)) for text in texts} == {LONGEST}
    return texts


def widest(channel: grpc.Channel) -> DecodingOptions:
    """A search of as many beams as the server takes, which goes on to its last token."""
    [model] = ModelServiceStub(channel).ListModels(ListModelsRequest()).models
    return DecodingOptions(
        num_beams=model.max_beams,
        num_return_sequences=model.max_beams,
        length_penalty=10,
        early_stopping=EARLY_STOPPING_NEVER,
        max_new_tokens=64,
    )


def arrived(server: ServerProcess) -> float:
    """Calls that are being answered, and those that were: the quickest may be before the last has come."""
    metrics = server.metrics()
    return metrics("dragoman_rpc_in_flight") + metrics("dragoman_rpc_requests_total")


def attack(port: int, over: Callable[[], bool]) -> None:
    """Connections, calls, messages and answers, all that there may be of them."""
    with unread(port, 500, LIST_MODELS), unread(port, 300, WATCH), streams(port, 20, 100):
        all_but_finished(port, 300, 4, 4 << 20, over)


def test_the_longest_texts_and_widest_searches_stay_within_the_budget(server: ServerProcess) -> None:
    budget = server.metrics()("dragoman_memory_bytes", kind="budget")
    assert budget <= server.metrics()("dragoman_memory_bytes", kind="limit") == MEGABYTES * 1_000_000
    texts = longest_texts(32)
    with grpc.insecure_channel(server.target) as channel, ThreadPoolExecutor(1) as thread:
        translate, score = TranslationServiceStub(channel).Translate, TranslationServiceStub(channel).Score
        encode = EncodingServiceStub(channel).Encode
        given = ScoreRequest(contents=[Candidates(content=text, targets=texts[:2]) for text in texts[:4]])
        search = TranslateRequest(contents=texts[:4], decoding=widest(channel))
        # A call whose answer is on its way counts as both.
        eventually(lambda: not server.metrics()("dragoman_rpc_in_flight"))
        before = arrived(server)
        searches = [translate.future(search) for _ in range(2)]
        scored = [score.future(given) for _ in range(2)]
        encoded = [encode.future(EncodeRequest(contents=texts)) for _ in range(2)]
        calls: list[Any] = [*searches, *scored, *encoded]
        eventually(lambda: arrived(server) == before + len(calls))
        attacked = thread.submit(attack, server.port, lambda: all(call.done() for call in calls))
        assert all(len(answer.result().translations) == 4 for answer in searches)
        assert all(len(answer.result().contents) == 4 for answer in scored)
        assert all(len(answer.result().embeddings) == len(texts) for answer in encoded)
        attacked.result()
    assert most_resident_bytes(server) <= budget
