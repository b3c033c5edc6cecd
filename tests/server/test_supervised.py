"""A server process whose engine fails: callers are answered, or the process ends for its orchestrator."""

import signal
from pathlib import Path

import grpc
import pytest

from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.server_process import WAIT_S, eventually, server_process

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
FAULTY = """
import sys
from engine.batch.searched_rows import SearchedRows
from server.__main__ import main

end_steps = SearchedRows.end_steps

def fault(rows, *given):
    tokens = max(len(one.request.source_ids) for one in rows.running)
    if tokens > 40:
        raise RuntimeError("a kernel is broken")
    return end_steps(rows, *given)

SearchedRows.end_steps = fault
sys.exit(main(sys.argv[1:]))
"""
"""A server whose engine crashes over long texts."""

HANGING = """
import sys, threading
from engine.batch.searched_rows import SearchedRows
from server.__main__ import main

end_steps, hung = SearchedRows.end_steps, []

def fault(rows, *given):
    if not hung and max(len(one.request.source_ids) for one in rows.running) > 40:
        hung.append(rows)
        threading.Event().wait()
    return end_steps(rows, *given)

SearchedRows.end_steps = fault
sys.exit(main(sys.argv[1:]))
"""
"""A server whose engine hangs over its first long text."""

FAILING_LATER = """
import sys
from engine.batch.searched_rows import SearchedRows
from server.__main__ import main

end_steps = SearchedRows.end_steps

def fault(rows, *given):
    if any(len(one.request.source_ids) > 40 and one.steps(rows.steps) == 3 for one in rows.running):
        raise RuntimeError("a kernel is broken")
    return end_steps(rows, *given)

SearchedRows.end_steps = fault
sys.exit(main(sys.argv[1:]))
"""
"""A server whose engine crashes in the fourth step of a long text."""

LONG = "the cat and the dog " * 12


def test_a_text_that_breaks_the_engine_is_refused_and_others_are_answered() -> None:
    with (
        server_process(ZOO, "--cache-mb", 0, program=FAULTY) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        translations = TranslationServiceStub(channel)
        beside = [translations.Translate.future(request(f"A cat sees {n} dogs."), timeout=WAIT_S) for n in range(8)]
        with pytest.raises(grpc.RpcError, match="failed twice with this text"):
            translations.Translate(request(LONG), timeout=WAIT_S)
        assert all(call.result().translations[0].hypotheses for call in beside)
        with pytest.raises(grpc.RpcError, match="failed twice with this text"):
            translations.Translate(request(LONG), timeout=WAIT_S)
        metrics = server.metrics()
        assert metrics("dragoman_engine_restarts_total", cause="crash") == 2
        assert metrics("dragoman_quarantined_total") == 2
        assert server.end(signal.SIGTERM) == 0


def test_an_engine_that_fails_too_often_ends_the_process_with_code_1() -> None:
    arguments = ("--engine-restarts", 1)
    with server_process(ZOO, *arguments, program=FAULTY) as server, grpc.insecure_channel(server.target) as channel:
        with pytest.raises(grpc.RpcError, match="engine"):
            TranslationServiceStub(channel).Translate(request(LONG), timeout=WAIT_S)
        assert server.process.wait(WAIT_S) == 1


def test_an_engine_that_hangs_is_left_behind_and_nobody_is_told() -> None:
    with (
        server_process(ZOO, "--workers", 1, program=HANGING) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        translations = TranslationServiceStub(channel)
        hanging = translations.Translate.future(request(LONG), timeout=WAIT_S)
        behind = translations.Translate.future(request("A cat sees two dogs."), timeout=WAIT_S)
        assert all(call.result().translations[0].hypotheses for call in (hanging, behind))
        assert server.metrics()("dragoman_engine_restarts_total", cause="hang") == 1
        assert server.end(signal.SIGTERM) == 0


def test_rows_of_a_worker_that_failed_are_told_apart() -> None:
    """All that was computed is in an answer or wasted: three steps, and three when it is tried for nobody."""
    quiet = "--canary-interval-s", 0
    with server_process(ZOO, *quiet, program=FAILING_LATER) as server, grpc.insecure_channel(server.target) as channel:
        stream = StreamTranslateRequest(content=LONG, decoding=DecodingOptions(num_beams=1))
        with pytest.raises(grpc.RpcError, match="engine"):
            list(TranslationServiceStub(channel).StreamTranslate(stream, timeout=WAIT_S))
        eventually(lambda: server.metrics()("dragoman_quarantined_total") == 1)
        metrics = server.metrics()
        assert metrics("dragoman_rows_computed_total") == metrics("dragoman_rows_wasted_total", reason="failed") == 6
        assert server.end(signal.SIGTERM) == 0


def request(text: str) -> TranslateRequest:
    return TranslateRequest(contents=[text])
