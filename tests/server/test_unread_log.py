"""A server whose standard error nobody reads, as a process."""

import signal
from pathlib import Path

import grpc
import pytest

from dragoman.v1.translation_pb2 import TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.server_process import WAIT_S, server_process

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
CALLS = 400
"""Of some 300 bytes in the log each: more than a pipe has room for."""


def test_it_answers_and_ends() -> None:
    with server_process(ZOO, "--log-requests") as server, grpc.insecure_channel(server.target) as channel:
        translations = TranslationServiceStub(channel)
        for _ in range(CALLS):
            with pytest.raises(grpc.RpcError, match="0 texts"):
                translations.Translate(TranslateRequest(), timeout=WAIT_S)
        answer = translations.Translate(TranslateRequest(contents=["A cat."]), timeout=WAIT_S)
        assert len(answer.translations) == 1
        assert server.end(signal.SIGTERM) == 0
