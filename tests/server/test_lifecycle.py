"""server.lifecycle: signals, draining, and that the process ends."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from server.lifecycle import GAVE_UP, StopSignals, drain
from tests.serving import (
    SMALL_WINDOW,
    STREAM,
    TRANSLATE,
    Serving,
    eventually,
    held,
    refused,
    serving,
    stream_request,
    texts,
    translate_request,
)

WAIT_S = 60
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_first_signal_asks_and_the_second_insists(number: signal.Signals) -> None:
    with closing(StopSignals(60)) as signals:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(signals.first.wait(), WAIT_S)
        assert not signals.second.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(signals.second.wait(), WAIT_S)


async def test_a_closed_terminal_has_files_read_again_where_there_are_some() -> None:
    heard, former = asyncio.Event(), signal.getsignal(signal.SIGHUP)
    with closing(StopSignals(60)) as signals:
        signals.on_hangup(heard.set)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(heard.wait(), WAIT_S)
        assert not signals.first.is_set()
    assert signal.getsignal(signal.SIGHUP) == former


async def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with closing(StopSignals(60)) as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(signals.first.wait(), WAIT_S)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert not signals.second.is_set()
    finally:
        signal.signal(signal.SIGHUP, former)


HANGS = """
import asyncio, sys, threading
from server import lifecycle

lifecycle.END_S = lifecycle.TELL_S = 60.0

async def main():
    lifecycle.StopSignals(float(sys.argv[1]))
    print("ready", flush=True)
    if sys.argv[2] == "wait":
        await asyncio.Event().wait()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

asyncio.run(main())
"""
"""A process that never ends by itself: what it waits for never comes, or its event loop stands still."""


@pytest.mark.parametrize("what", ["wait", "loop"])
@pytest.mark.parametrize(
    ("grace_period_s", "signals"),
    [(0.1, [signal.SIGTERM]), (1000, [signal.SIGTERM, signal.SIGINT])],
    ids=["one signal", "two signals"],
)
def test_a_process_that_hangs_ends_with_code_1_and_says_where(
    what: str, grace_period_s: float, signals: Sequence[signal.Signals]
) -> None:
    command = [sys.executable, "-c", HANGS, str(grace_period_s), what]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "ready\n"
            for number in signals:
                process.send_signal(number)
            assert process.wait(WAIT_S) == GAVE_UP
            told = process.stderr.read()
        finally:
            process.kill()
    assert "the server did not end in time" in told
    assert "thread MainThread:" in told


# Draining


async def drained(server: Serving, grace_period_s: float = 60, at_once: asyncio.Event | None = None) -> None:
    never = asyncio.Event()
    await drain(server.server, server.health, [server.admission], server.calls, grace_period_s, at_once or never)


@pytest.mark.usefixtures("answers_get_out")
async def test_draining_finishes_what_runs_and_sends_the_rest_elsewhere_at_once() -> None:
    async with serving(reuse_port=True) as server:
        server.decoder.gate.close()
        running = asyncio.ensure_future(texts(server, "Two dogs bark."))
        await held(server)
        async with serving(port=server.port, reuse_port=True) as other:
            draining = asyncio.ensure_future(drained(server))
            async with asyncio.timeout(WAIT_S):
                # Until its client has seen the GOAWAY: what comes at the same moment gRPC may leave unanswered.
                await server.channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                assert await texts(server, "A cat.") == ["A cat."]
            assert other.model_metric("dragoman_finished_total", reason="end_token") == 1
            assert not draining.done()
            server.decoder.gate.open()
            assert await running == ["Two dogs bark."]
            await draining


async def test_watchers_of_health_are_told_and_hold_up_nothing() -> None:
    async with serving() as server:
        health: Any = HealthStub(server.channel)  # whose types do not know that it has methods
        watch = health.Watch(HealthCheckRequest(service="dragoman.v1.TranslationService"))
        assert (await watch.read()).status == HealthCheckResponse.SERVING
        await drained(server)
        assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING


async def test_a_watcher_that_reads_nothing_holds_up_nothing() -> None:
    async with serving(channel_options=SMALL_WINDOW) as server:
        health: Any = HealthStub(server.channel)
        watch = health.Watch(HealthCheckRequest())
        assert await watch.initial_metadata() is not None
        async with asyncio.timeout(WAIT_S):
            await drained(server)
        watch.cancel()


@pytest.mark.usefixtures("answers_get_out")
@pytest.mark.parametrize("how", ["grace period", "second signal"])
async def test_what_does_not_finish_is_answered_with_the_grace_period_or_at_once(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving() as server:
        server.decoder.gate.close()  # for ever: the engine hangs
        running = asyncio.ensure_future(refused(server.translations.Translate(translate_request("Two dogs bark."))))
        await held(server)
        second = asyncio.Event()
        if how == "second signal":
            second.set()
        await drained(server, 60 if how == "second signal" else 0.01, second)
        told = await running
        assert (told.code, told.info.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert "1 calls are still running and are answered with DRAINING" in caplog.text
        assert server.metric("dragoman_rpc_requests_total", method=TRANSLATE, code="UNAVAILABLE") == 1


async def test_a_client_that_does_not_read_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(channel_options=SMALL_WINDOW) as server:
        call = server.translations.StreamTranslate(stream_request("Two dogs bark."))
        await eventually(lambda: server.model_metric("dragoman_finished_total", reason="end_token") == 1)
        await drained(server, 0.01)
        assert "cut off" in caplog.text
        assert server.calls.running == 0
        assert server.metric("dragoman_rpc_requests_total", method=STREAM, code="UNAVAILABLE") == 1
        call.cancel()
