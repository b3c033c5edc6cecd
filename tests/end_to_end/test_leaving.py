"""Callers that leave a server: their rows are free at once."""

from collections.abc import Callable

import grpc
import pytest

from dragoman import Client, DeadlineExceeded, FinishReason, Unavailable
from dragoman.v1.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.end_to_end.questions import ENDLESS, TEXTS
from tests.server_process import Metrics, ServerProcess, eventually

pytestmark = pytest.mark.timeout(600)


FULL = TranslateRequest(contents=TEXTS[:20], decoding=ENDLESS)
"""Fills three quarters of the rows of both workers with 12 of its contents: the last one is for other callers."""


def cancel(call: "grpc.Future[TranslateResponse]", channel: grpc.Channel) -> None:
    call.cancel()


def vanish(call: "grpc.Future[TranslateResponse]", channel: grpc.Channel) -> None:
    channel.close()


@pytest.mark.parametrize("leave", [cancel, vanish])
def test_rows_of_a_caller_that_leaves_are_free_at_once(
    leave: Callable[["grpc.Future[TranslateResponse]", grpc.Channel], None], server: ServerProcess, client: Client
) -> None:
    before = server.metrics()
    with grpc.insecure_channel(server.target) as channel:
        call = TranslationServiceStub(channel).Translate.future(FULL)
        eventually(lambda: server.metrics()("dragoman_rows_live") == 2 * 48)
        eventually(lambda: server.metrics()("dragoman_requests_waiting") == 8)
        leave(call, channel)
    check_all_is_dropped(server, before, "CANCELLED")
    assert client.translate(TEXTS[0]).finish_reason is FinishReason.END_TOKEN


def test_rows_are_free_when_the_deadline_has_passed(server: ServerProcess, client: Client) -> None:
    before = server.metrics()
    # The deadline has passed, or the server has seen that the next step would end after it.
    with pytest.raises((DeadlineExceeded, Unavailable)), Client(server.target) as hasty:
        hasty.translate(
            list(FULL.contents), num_beams=8, length_penalty=10, early_stopping="never", timeout_s=2, no_cache=True
        )
    check_nothing_is_left(server, before)
    assert server.metrics()("dragoman_steps_total") > before("dragoman_steps_total")
    assert client.translate(TEXTS[0]).finish_reason is FinishReason.END_TOKEN


def check_all_is_dropped(server: ServerProcess, before: Metrics, code: str) -> None:
    """All contents of FULL, which was the only call since `before`."""
    cancelled = before("dragoman_cancellations_total") + len(FULL.contents)
    calls = before("dragoman_rpc_requests_total", code=code) + 1
    eventually(lambda: server.metrics()("dragoman_cancellations_total") == cancelled)
    eventually(lambda: server.metrics()("dragoman_rpc_requests_total", code=code) == calls)
    check_nothing_is_left(server, before)


def check_nothing_is_left(server: ServerProcess, before: Metrics) -> None:
    """Nothing was answered since `before`, and nothing runs or waits."""
    gauges = "dragoman_rows_live", "dragoman_requests_waiting", "dragoman_rpc_in_flight"
    eventually(lambda: not any(map(server.metrics(), gauges)))
    assert server.metrics()("dragoman_finished_total") == before("dragoman_finished_total")
