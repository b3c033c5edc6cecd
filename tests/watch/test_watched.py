"""A real server with everything on that lets it be watched: metrics, log, traces, certificate."""

import asyncio
import json
import logging
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from dragoman import AsyncClient, Client, DragomanError, InvalidArgument, TlsOptions
from engine.queueing.express import EXPRESS_ROWS
from engine.request import PHASES
from models.package.folder import Package
from server.config import Settings
from server.telemetry.metrics.process import ProcessMetrics, State
from tests.fakes import WAIT_S, CopyDecoder
from tests.server.telemetry.test_tracing import collecting
from tests.server_process import server_process
from tests.serving import eventually, serve_here

TRANSLATE = "dragoman.v1.TranslationService/Translate"
EXPIRY = datetime(2030, 1, 1, tzinfo=UTC)


def test_a_server_tells_all_of_itself(tiny_package: Package, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", not_after=EXPIRY)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(certificate)
    began = time.time()
    with collecting() as (collector, endpoint):
        logged = ("--log-format", "json", "--log-requests", "--otlp-endpoint", endpoint)
        limits = ("--max-waiting", 300, "--max-contents", 10)
        tls = ("--tls-certificate", certificate, "--tls-key", key)
        with server_process(tiny_package.folder, *tls, *logged, *limits) as server:
            with Client(server.target, tls=TlsOptions(authority.cert_pem.bytes())) as client:
                translation = client.translate("a")
                with pytest.raises(InvalidArgument) as caught:
                    client.translate(" ")
            metrics = server.metrics()
            assert server.process.stderr is not None
            assert server.end(signal.SIGTERM) == 0
            lines = [json.loads(line) for line in server.process.stderr]
    ready = metrics("dragoman_model_loaded_timestamp_seconds", model="tiny")
    assert began < ready < time.time()
    assert metrics("dragoman_probe_seconds") < metrics("dragoman_model_load_seconds") < ready - began
    assert metrics("dragoman_server_state", state="serving") == metrics("dragoman_server_state") == 1
    assert metrics("dragoman_tls_certificate_expiry_timestamp_seconds") == EXPIRY.timestamp()
    assert metrics("dragoman_queue_capacity", model="tiny") == 300
    rows = 2 * 64 + EXPRESS_ROWS
    assert metrics("dragoman_cache_tokens_capacity") == rows * 2 * tiny_package.manifest.model.max_positions
    assert metrics("dragoman_device_info", asked="cpu", provider="CPUExecutionProvider") == 1
    assert metrics("dragoman_threads") > 4
    assert metrics("dragoman_encoder_tokens_total", kind="padding") == 0
    answered, refused = (line for line in lines if line["logger"] == "server.telemetry.calls")
    assert (answered["target_tokens"], answered["steps"]) == (translation.tokens, translation.timings.steps)
    assert (refused["reason"], refused["request_id"]) == ("BLANK_CONTENT", caught.value.request_id)
    assert answered["trace_id"] in {span.trace_id.hex() for span in collector.named(TRANSLATE)}
    assert [len(collector.named(phase)) for phase in PHASES] == [1] * len(PHASES)


# The states of a server


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> CopyDecoder:
    """In the place of the real one, with a gate at every step."""
    decoder = CopyDecoder()
    monkeypatch.setattr("engine.loading.load.CpuDecoder", lambda *arguments: decoder)
    return decoder


@pytest.fixture
def launch(tiny_package: Package, caplog: pytest.LogCaptureFixture) -> Callable[[], "asyncio.Task[int]"]:
    caplog.set_level(logging.INFO)
    settings = Settings(package=(tiny_package.folder,), workers=1, port=0, metrics_port=0, http=False, kernels="off")
    return lambda: asyncio.create_task(serve_here(settings))


async def ports(caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """Of gRPC and of metrics."""
    await eventually(lambda: "serving tiny" in caplog.text)
    [(grpc_port, metrics_port)] = re.findall(r"serving tiny on [\d.]+:(\d+) .* http://[\d.]+:(\d+)/", caplog.text)
    return grpc_port, metrics_port


async def state(metrics_port: str) -> str:
    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as page:
            [state] = re.findall(r'dragoman_server_state{state="(\w+)"} 1.0', page.read().decode())
        return str(state)

    return await asyncio.to_thread(read)


async def becomes(metrics_port: str, wanted: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while await state(metrics_port) != wanted:
            await asyncio.sleep(0.01)


async def test_a_server_is_draining_while_a_call_goes_on_after_a_signal(
    launch: Callable[[], "asyncio.Task[int]"], decoder: CopyDecoder, caplog: pytest.LogCaptureFixture
) -> None:
    serving = launch()
    port, metrics_port = await ports(caplog)
    await becomes(metrics_port, "serving")
    decoder.gate.close()
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        call = asyncio.create_task(client.translate("a"))
        await asyncio.to_thread(decoder.gate.wait_until_held)
        os.kill(os.getpid(), signal.SIGTERM)
        await becomes(metrics_port, "draining")
        decoder.gate.open()
        assert (await call).tokens > 0
    assert await serving == 0


async def test_a_server_has_failed_when_its_engines_have_too_often(
    launch: Callable[[], "asyncio.Task[int]"],
    decoder: CopyDecoder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: list[State] = []
    monkeypatch.setattr(ProcessMetrics, "enter", lambda process, state: entered.append(state))
    serving = launch()
    port, _ = await ports(caplog)
    decoder.step_error = RuntimeError("bad kernel")
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        for text in "abcde":  # each of them fails twice, but the last
            with pytest.raises(DragomanError):
                await client.translate(text)
    assert await serving == 1
    assert entered == [State.STARTING, State.SERVING, State.FAILED]
