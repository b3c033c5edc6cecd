"""server.telemetry: spans as a collector receives them, from real calls over real gRPC."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.trace import INVALID_SPAN_CONTEXT

from dragoman.v1.encoding_pb2 import EncodeRequest
from engine.request import PHASES
from server.config import ConfigError, Settings
from server.kserve.service import SERVICE
from server.telemetry.calls import Call
from server.telemetry.otlp import open_otlp
from server.telemetry.tracing import MOST_CONTENTS, Tracing, open_tracing
from tests.server.api.test_scoring import score_request
from tests.server.http.asking import TRANSLATE as TRANSLATE_PATH
from tests.server.http.asking import asking, translate_json
from tests.server.kserve.test_service import asking as infer_request
from tests.server.kserve.test_service import stub
from tests.serving import STREAM, TRANSLATE, eventually, refusal, serving, stream_request, translate_request

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(TraceServiceServicer):
    """Keeps the spans it receives."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []

    def Export(self, request: ExportTraceServiceRequest, context: object) -> ExportTraceServiceResponse:
        for resource in request.resource_spans:
            self.resources.append(values(resource.resource))
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return ExportTraceServiceResponse()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def values(holder: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes}


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A collector, and where it listens."""
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


async def spans_of(*requests: Any, flags: str | None = "01", sample_ratio: float = 1.0) -> tuple[Collector, int, int]:
    """What a collector gets of some calls, one after the other, and the times around them in ns."""
    metadata = () if flags is None else (("traceparent", f"00-{TRACE}-{PARENT}-{flags}"), ("x-request-id", "order-17"))
    with collecting() as (collector, endpoint):
        tracing = Tracing(*open_otlp(endpoint, sample_ratio, "1.2.3"))
        began = time.time_ns()
        async with serving(tracing=tracing, max_contents=32, max_waiting=32) as server:
            for request in requests:
                if request.DESCRIPTOR.name == "StreamTranslateRequest":
                    async for _ in server.translations.StreamTranslate(request, metadata=metadata):
                        pass
                else:
                    try:
                        await server.translations.Translate(request, metadata=metadata)
                    except grpc.aio.AioRpcError as error:
                        assert refusal(error).info.reason
            await eventually(lambda: server.calls.running == 0)
        ended = time.time_ns()
        tracing.close()
    return collector, began, ended


async def test_a_call_is_a_span_of_its_callers_trace_with_its_phases_below_in_order() -> None:
    collector, began, ended = await spans_of(translate_request("Two dogs bark."))
    [call] = collector.named(TRANSLATE)
    assert (call.trace_id.hex(), call.parent_span_id.hex()) == (TRACE, PARENT)
    assert call.kind == Span.SPAN_KIND_SERVER
    assert len(collector.spans) == 1 + len(PHASES)
    phases = [collector.named(phase)[0] for phase in PHASES]
    assert {(phase.trace_id, phase.parent_span_id) for phase in phases} == {(call.trace_id, call.span_id)}
    slack = 5_000_000  # the two clocks of the process are read one after the other
    edges = [began - slack, call.start_time_unix_nano]
    edges += [edge for phase in phases for edge in (phase.start_time_unix_nano, phase.end_time_unix_nano)]
    edges += [call.end_time_unix_nano, ended + slack]
    assert edges == sorted(edges)
    assert all(phase.end_time_unix_nano > phase.start_time_unix_nano for phase in phases)


async def test_a_span_tells_of_its_call_but_not_what_it_says() -> None:
    collector, _, _ = await spans_of(translate_request("Two dogs bark."))
    [call] = collector.named(TRANSLATE)
    facts = values(call)
    assert facts.pop("dragoman.source_tokens") == facts.pop("dragoman.target_tokens") > 1
    service, method = TRANSLATE.split("/")
    assert facts == {
        "rpc.system": "grpc",
        "rpc.service": service,
        "rpc.method": method,
        "rpc.grpc.status_code": 0,
        "dragoman.request_id": "order-17",
        "dragoman.caller": "ipv4:127.0.0.1",
        "dragoman.model": "copy",
        "dragoman.contents": 1,
    }
    assert call.status.code == Status.STATUS_CODE_UNSET
    assert collector.resources[0]["service.name"] == "dragoman"
    assert collector.resources[0]["service.version"] == "1.2.3"
    assert "dogs" not in str(collector.spans)


@pytest.mark.parametrize("log_labels", [False, True])
async def test_a_span_has_the_labels_of_its_call_where_that_is_asked_for(log_labels: bool) -> None:
    with collecting() as (collector, endpoint):
        settings = Settings(workers=1, otlp_endpoint=endpoint, log_labels=log_labels)
        tracing = open_tracing(settings, "1")
        async with serving(tracing=tracing) as server:
            request = translate_request("A cat.")
            request.labels["tenant"] = "blue"
            await server.translations.Translate(request)
        tracing.close()
    [call] = collector.named(TRANSLATE)
    assert values(call).get("dragoman.label.tenant") == ("blue" if log_labels else None)


async def test_a_stream_has_its_phases_too() -> None:
    collector, _, _ = await spans_of(stream_request("Two dogs bark."))
    [call] = collector.named(STREAM)
    assert [len(collector.named(phase)) for phase in PHASES] == [1] * len(PHASES)
    assert values(call)["dragoman.contents"] == 1


async def test_a_span_says_by_which_protocol_its_call_came() -> None:
    with collecting() as (collector, endpoint):
        tracing = Tracing(*open_otlp(endpoint, 1.0, "1.2.3"))
        async with asking(tracing=tracing) as (server, client):
            assert (await client.post(TRANSLATE_PATH, json=translate_json("a"))).status_code == 200
            await server.translations.Translate(translate_request("a"))
            await eventually(lambda: server.calls.running == 0)
        tracing.close()
    [by_http], [by_grpc] = (collector.named(name) for name in ("http.TranslationService/Translate", TRANSLATE))
    assert values(by_http)["rpc.system"] == "http"
    assert values(by_grpc)["rpc.system"] == "grpc"


async def test_a_request_of_a_stream_is_a_span_below_the_stream() -> None:
    infer, stream = f"{SERVICE}/ModelInfer", f"{SERVICE}/ModelStreamInfer"
    with collecting() as (collector, endpoint):
        tracing = Tracing(*open_otlp(endpoint, 1.0, "1.2.3"))
        async with serving(tracing=tracing) as server:
            async for _ in stub(server).ModelStreamInfer(iter([infer_request(b"a"), infer_request(b"b")])):
                pass
            await eventually(lambda: server.calls.running == 0)
        tracing.close()
    [whole], requests = collector.named(stream), collector.named(infer)
    assert [(one.trace_id, one.parent_span_id) for one in requests] == [(whole.trace_id, whole.span_id)] * 2


async def test_scores_have_the_phases_of_a_translation_and_vectors_have_no_decoding() -> None:
    with collecting() as (collector, endpoint):
        tracing = Tracing(*open_otlp(endpoint, 1.0, "1.2.3"))
        async with serving(tracing=tracing) as server:
            await server.translations.Score(score_request(("a", ["b"])))
            scored = 1 + len(PHASES)
            await server.encodings.Encode(EncodeRequest(contents=["a"]))
            await eventually(lambda: server.calls.running == 0)
        tracing.close()
    assert len(collector.spans) == scored + 1 + len(("tokenize", "queue", "encode"))
    [decode] = collector.named("decode")
    [encode] = [span for span in collector.named("encode") if span.parent_span_id == decode.parent_span_id]
    assert decode.start_time_unix_nano == encode.end_time_unix_nano < decode.end_time_unix_nano


async def test_the_phases_of_many_contents_are_told_of_the_first() -> None:
    collector, _, _ = await spans_of(translate_request(*["A cat."] * (MOST_CONTENTS + 4)))
    assert [values(span)["dragoman.content"] for span in collector.named("decode")] == list(range(MOST_CONTENTS))
    assert values(collector.named(TRANSLATE)[0])["dragoman.contents"] == MOST_CONTENTS + 4


async def test_a_callers_mistake_is_no_error_of_the_server() -> None:
    collector, _, _ = await spans_of(translate_request(" "))
    [call] = collector.spans
    assert values(call)["rpc.grpc.status_code"] == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert call.status.code == Status.STATUS_CODE_UNSET


async def test_a_full_queue_is_one() -> None:
    collector, _, _ = await spans_of(translate_request(*["A cat."] * 32), translate_request("A cat."))
    assert [span.status.code for span in collector.named(TRANSLATE)] == [Status.STATUS_CODE_UNSET] * 2
    with collecting() as (collector, endpoint):
        tracing = Tracing(*open_otlp(endpoint, 1.0, "1.2.3"))
        async with serving(tracing=tracing, max_waiting=1) as server:
            with pytest.raises(grpc.aio.AioRpcError):
                await server.translations.Translate(translate_request("A cat.", "A dog."))
            await eventually(lambda: server.calls.running == 0)
        tracing.close()
    [call] = collector.spans
    assert (call.status.code, call.status.message) == (Status.STATUS_CODE_ERROR, "OVERLOADED")


@pytest.mark.parametrize(
    ("flags", "sample_ratio", "sent"), [("00", 1.0, 0), ("01", 0.0, 2), (None, 1.0, 2), (None, 0.0, 0)]
)
async def test_callers_decide_of_their_traces_and_the_ratio_of_the_others(
    flags: str | None, sample_ratio: float, sent: int
) -> None:
    requests = translate_request("A cat."), translate_request("A dog.")
    collector, _, _ = await spans_of(*requests, flags=flags, sample_ratio=sample_ratio)
    calls = collector.named(TRANSLATE)
    assert len(calls) == sent
    if flags is None:
        assert len({call.trace_id for call in calls}) == sent
        assert all(not call.parent_span_id for call in calls)


async def test_a_trace_of_the_servers_own_is_its_exemplar() -> None:
    with collecting() as (collector, endpoint):
        tracing = Tracing(*open_otlp(endpoint, 1.0, "1.2.3"))
        async with serving(tracing=tracing) as server:
            await server.translations.Translate(translate_request("A cat."))
            await eventually(lambda: server.calls.running == 0)
            found = {
                sample.exemplar.labels["trace_id"]
                for family in server.registry.collect()
                for sample in family.samples
                if sample.exemplar is not None
            }
        tracing.close()
    assert found == {span.trace_id.hex() for span in collector.spans}


async def test_a_collector_that_is_away_costs_no_call() -> None:
    tracing = Tracing(*open_otlp("http://127.0.0.1:1", 1.0, "1.2.3"))
    async with serving(tracing=tracing) as server:
        response = await server.translations.Translate(translate_request("A cat."))
        assert response.translations[0].hypotheses[0].text == "A cat."
    closing = threading.Thread(target=tracing.close)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


# Settings


def test_it_is_off_unless_asked_for() -> None:
    span = open_tracing(Settings(workers=1), "1").start("s/m", "grpc", {})
    assert span.context == INVALID_SPAN_CONTEXT


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_without_a_collector_a_call_is_part_of_its_callers_trace(flags: str, sampled: bool) -> None:
    call = traced(f"00-{TRACE}-{PARENT}-{flags}")
    assert (call.trace_id, call.exemplar) == (TRACE, TRACE if sampled else "")


def test_a_later_version_of_the_standard_may_have_more() -> None:
    assert traced(f"01-{TRACE}-{PARENT}-01-what-comes").exemplar == TRACE


@pytest.mark.parametrize(
    "value",
    [
        "",
        TRACE,
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{PARENT}-01",
    ],
)
def test_what_the_standard_says_to_ignore_is_ignored(value: str) -> None:
    assert traced(value).trace_id == ""


def traced(traceparent: str) -> Call:
    """A call that says that it belongs to a trace, of a server without a collector."""
    span = open_tracing(Settings(workers=1), "1").start("s/m", "grpc", {"traceparent": traceparent})
    return Call("s/m", trace=span.context)


def test_without_its_packages_the_way_to_get_them_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "server.telemetry.otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    settings = Settings(workers=1, otlp_endpoint="http://127.0.0.1:4317")
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:4317.*not installed: pip install '\.\[tracing\]'"):
        open_tracing(settings, "1")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4317", "http://", "http://a b", "http://a:4317/v1/traces", "ftp://a"])
def test_an_endpoint_has_a_scheme_and_a_host_and_no_path(endpoint: str) -> None:
    with pytest.raises(ValueError, match="otlp_endpoint"):
        Settings(workers=1, otlp_endpoint=endpoint)


def test_the_name_of_the_service_is_opentelemetrys_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with collecting() as (collector, endpoint):
        tracing = Tracing(*open_otlp(endpoint, 1.0, "1.2.3"))
        tracing.start("s/m", "grpc", {}).end(Call("s/m"))
        tracing.close()
    assert collector.resources[0]["service.name"] == "mine"
