"""Requests that no well-behaved client sends, and what a server does with requests of this protocol."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from server.errors import Draining
from server.kserve.service import SERVICE
from server.kserve.v2.inference_pb2 import (
    InferParameter,
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
    ModelMetadataRequest,
    ModelReadyRequest,
    ModelStatistics,
    ModelStatisticsRequest,
    RepositoryIndexRequest,
    ServerLiveRequest,
)
from server.kserve.v2.inference_pb2_grpc import GRPCInferenceServiceStub
from server.running import OBSERVED
from server.telemetry.logs import FIELDS
from tests.server.grpc.test_identity import bearer, door
from tests.serving import Serving, eventually, held, refused, serving

if TYPE_CHECKING:
    from server.kserve.v2.inference_pb2_grpc import GRPCInferenceServiceAsyncStub

Input, Output = ModelInferRequest.InferInputTensor, ModelInferRequest.InferRequestedOutputTensor


def stub(server: Serving) -> "GRPCInferenceServiceAsyncStub":
    return GRPCInferenceServiceStub(server.channel)


def raw(*texts: bytes) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def parameter(value: bool | int | float | str) -> InferParameter:
    kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
    return InferParameter(**{kind: value})  # type: ignore[arg-type]


def asking(
    *texts: bytes, model: str = "copy", parameters: dict[str, Any] | None = None, **more: Any
) -> ModelInferRequest:
    """With typed contents."""
    tensor = Input(
        name="text", datatype="BYTES", shape=[len(texts), 1], contents=InferTensorContents(bytes_contents=texts)
    )
    options = {"target_language": "pt", **(parameters or {})} if not model.endswith(".encode") else parameters or {}
    values = {name: parameter(value) for name, value in options.items()}
    return ModelInferRequest(**{"model_name": model, "inputs": [tensor], "parameters": values, **more})


def asking_raw(values: list[bytes], shape: list[int], **of_tensor: Any) -> ModelInferRequest:
    tensor = Input(**{"name": "text", "datatype": "BYTES", "shape": shape, **of_tensor})
    said = {"target_language": parameter("pt")}
    return ModelInferRequest(model_name="copy", inputs=[tensor], raw_input_contents=values, parameters=said)


def translations(response: ModelInferResponse) -> list[bytes]:
    return list(response.outputs[0].contents.bytes_contents)


CATS = raw(b"A cat.", b"A dog.")
LARGEST = 2**63 - 1
BAD: list[tuple[ModelInferRequest, str, str]] = [
    (asking(b"A cat.", model="zz"), "MODEL_NOT_FOUND", 'no model "zz"; the server has copy'),
    (asking(b"A cat.", model_version="7"), "MODEL_NOT_FOUND", '"copy/7"; the server has copy/1'),
    (asking(b"A cat.", model="copy.stream"), "DECOUPLED_MODEL", "ask it by ModelStreamInfer"),
    (asking(b"A cat.", inputs=[]), "INVALID_TENSOR", "the number of inputs is 0; it must be 1"),
    (asking(b"A cat.", inputs=[Input(name="text")] * 3), "INVALID_TENSOR", "the number of inputs is 3"),
    (asking_raw([CATS], [2, 1], name="texts"), "INVALID_TENSOR", 'is "texts"; it must be "text"'),
    (asking_raw([CATS], [2, 1], datatype="FP32"), "INVALID_TENSOR", 'is "FP32"; it must be "BYTES"'),
    (asking_raw([CATS], [2, 1], datatype="X" * 9999), "INVALID_TENSOR", 'it must be "BYTES"'),
    (asking_raw([CATS], []), "INVALID_TENSOR", "text.shape is []"),
    (asking_raw([CATS], [-1]), "INVALID_TENSOR", "text.shape is [-1]"),
    (asking_raw([CATS], [2, 2]), "INVALID_TENSOR", "text.shape is [2, 2]"),
    (asking_raw([CATS], [1] * 1000), "INVALID_TENSOR", "[1, 1, 1, 1, 1, 1, 1, 1, ...]"),
    (asking_raw([CATS], [LARGEST, 1]), "TOO_MANY_CONTENTS", f"has {LARGEST} contents; a call takes 8"),
    (asking_raw([raw(*[b"A cat."] * 9)], [9, 1]), "TOO_MANY_CONTENTS", "has 9 contents; a call takes 8"),
    (asking_raw([CATS], [1, 1]), "INVALID_TENSOR", "is 20 bytes; it must be 10, where the last of 1 ends"),
    (asking_raw([CATS], [3, 1]), "INVALID_TENSOR", "is 20 bytes; it must be 24 or more for text[2] of 3 to end"),
    (asking_raw([b"\xff\xff\xff\xff"], [1, 1]), "INVALID_TENSOR", "is 4 bytes; it must be 4294967299 or more"),
    (asking_raw([CATS, CATS], [2, 1]), "INVALID_TENSOR", "the number of contents of text is 2; it must be 1"),
    (asking(b"A cat.", raw_input_contents=[raw(b"A cat.")]), "INVALID_TENSOR", "contents of text is 2"),
    (asking_raw([], [2, 1]), "INVALID_TENSOR", "bytes_contents is 0; it must be 2, as its shape says"),
    (
        asking_raw([], [1, 1], contents=InferTensorContents(fp32_contents=[1.0])),
        "INVALID_TENSOR",
        "is 1 fp32_contents; it must be bytes_contents",
    ),
    (
        asking_raw([CATS], [2, 1], parameters={"shared_memory_region": parameter("x")}),
        "INVALID_TENSOR",
        "send the values themselves",
    ),
    (
        asking_raw([CATS], [2, 1], parameters={"binary_data_size": parameter(19)}),
        "INVALID_TENSOR",
        "text.parameters[binary_data_size] is 19; it must be 20, the size of raw_input_contents[0]",
    ),
    (asking_raw([raw(b"A cat.", b"\xff")], [2]), "INVALID_TENSOR", "byte 0 of text[1] is 0xff; it must be UTF-8"),
    (asking(), "EMPTY_CONTENTS", "0 texts"),
    (asking(b" "), "BLANK_CONTENT", "contents[0] is blank"),
    (asking(b"A cat. " * 100), "SOURCE_TOO_LONG", "the model takes 128"),
    (asking(b"A cat.", outputs=[Output(name="logits")]), "INVALID_TENSOR", '"logits"; it must be translation or score'),
    (asking(b"A cat.", outputs=[Output(name="score")] * 2), "INVALID_TENSOR", "is 2; it must be at most 1"),
    (
        asking(b"A cat.", outputs=[Output(name="score", parameters={"classification": parameter(3)})]),
        "INVALID_TENSOR",
        "parameters of output score is 1; it must be 0",
    ),
    (asking(b"A cat.", parameters={"beams": 4}), "INVALID_PARAMETER", 'parameters["beams"] is not known'),
    (asking(b"A cat.", parameters={"with_tokens": True}), "INVALID_PARAMETER", "is not known"),
    (asking(b"A cat.", parameters={"num_beams": "4"}), "INVALID_PARAMETER", 'is "4", of type str; it must be int'),
    (asking(b"A cat.", parameters={"num_beams": True}), "INVALID_PARAMETER", "of type bool; it must be int"),
    (asking(b"A cat.", parameters={"early_stopping": "soon"}), "INVALID_PARAMETER", 'it must be bool or "never"'),
    (asking(b"A cat.", parameters={"num_beams": LARGEST}), "OPTION_OUT_OF_RANGE", f"is {LARGEST}; it must be from 1"),
    (asking(b"A cat.", parameters={"length_penalty": float("nan")}), "OPTION_OUT_OF_RANGE", "and finite"),
    (asking(b"A cat.", parameters={"target_language": "zz"}), "LANGUAGE_NOT_SUPPORTED", "the model has pt, pt-BR"),
    (asking(b"A cat.", model="copy.encode", parameters={"num_beams": 4}), "INVALID_PARAMETER", "normalize"),
    (asking(b"A cat.", model="copy.encode", parameters={"dimensions": 0}), "OPTION_OUT_OF_RANGE", "dimensions is 0"),
]


async def test_what_cannot_be_answered_is_refused_and_the_server_goes_on() -> None:
    async with serving() as server:
        client, codes = stub(server), {"MODEL_NOT_FOUND": grpc.StatusCode.NOT_FOUND}
        for request, reason, words in BAD:
            refusal = await refused(client.ModelInfer(request))
            assert (refusal.info.reason, refusal.code) == (reason, codes.get(reason, grpc.StatusCode.INVALID_ARGUMENT))
            assert words in refusal.message and len(refusal.message) < 1500, (reason, refusal.message)
        assert translations(await client.ModelInfer(asking(b"A cat."))) == [b"A cat."]
        for method in ("RepositoryModelLoad", "SystemSharedMemoryRegister", "TraceSetting"):
            channel: Any = server.channel  # whose types know no calls with bytes
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"/{SERVICE}/{method}")(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not (await client.ModelReady(ModelReadyRequest(name="copy", version="2"))).ready
        refusal = await refused(client.ModelMetadata(ModelMetadataRequest(name="zz")))
        assert (refusal.info.reason, refusal.fields) == ("MODEL_NOT_FOUND", ["name"])
        refusal = await refused(client.RepositoryIndex(RepositoryIndexRequest(repository_name="other")))
        assert (refusal.info.reason, refusal.fields) == ("INVALID_PARAMETER", ["repository_name"])


async def test_values_come_back_as_they_were_sent() -> None:
    async with serving() as server:
        client = stub(server)
        typed = await client.ModelInfer(asking(b"A cat.", b"The dogs are there.", id="7"))
        assert translations(typed) == [b"A cat.", b"The dogs are there."]
        assert (typed.id, typed.model_name, typed.model_version) == ("7", "copy", "1")
        same = await client.ModelInfer(asking_raw([raw(b"A cat.", b"The dogs are there.")], [2]))
        assert [(one.name, list(one.shape)) for one in same.outputs] == [
            (name, [2, 1]) for name in ("translation", "score", "tokens", "finish_reason")
        ]
        assert same.raw_output_contents[0] == raw(b"A cat.", b"The dogs are there.")
        assert same.raw_output_contents[2] == b"".join(
            tokens.to_bytes(4, "little") for tokens in typed.outputs[2].contents.int_contents
        )
        [vectors] = (await client.ModelInfer(asking(b"A cat.", b"A dog.", model="copy.encode"))).outputs
        assert vectors.shape[0] == 2 and len(vectors.contents.fp32_contents) == 2 * vectors.shape[1]
        ignored = {"sequence_id": 3, "priority": 1, "timeout": 5, "triton_enable_empty_final_response": True}
        assert translations(await client.ModelInfer(asking(b"A cat.", parameters=ignored))) == [b"A cat."]


async def test_what_the_client_of_kserve_says_of_raw_tensors_is_taken() -> None:
    async with serving() as server:
        request = asking_raw([CATS], [2, 1], parameters={"binary_data_size": parameter(len(CATS))})
        request.outputs.append(Output(name="translation", parameters={"binary_data": parameter(True)}))
        response = await stub(server).ModelInfer(request)
        assert list(response.raw_output_contents) == [CATS]


async def test_the_scope_is_that_of_the_model() -> None:
    async with serving(door=door(reads=["translate"], maps=["encode", "models"])) as server:
        client = stub(server)
        assert translations(await client.ModelInfer(asking(b"A cat."), metadata=bearer("reads"))) == [b"A cat."]
        assert (await client.ServerLive(ServerLiveRequest(), metadata=bearer("maps"))).live
        for call in (
            client.ModelInfer(asking(b"A cat.", model="copy.encode"), metadata=bearer("reads")),
            client.ModelInfer(asking(b"A cat."), metadata=bearer("maps")),
            client.ServerLive(ServerLiveRequest(), metadata=bearer("reads")),
        ):
            assert (await refused(call)).info.reason == "SCOPE_MISSING"
        assert (await refused(client.ModelInfer(asking(b"A cat.")))).info.reason == "NO_CREDENTIALS"

        async def requests() -> AsyncIterator[ModelInferRequest]:
            yield asking(b"A cat.", model="copy.encode")

        [response] = [one async for one in client.ModelStreamInfer(requests(), metadata=bearer("reads"))]
        assert response.infer_response.parameters["reason"].string_param == "SCOPE_MISSING"


async def test_each_request_of_a_stream_is_a_call(caplog: pytest.LogCaptureFixture) -> None:
    """It fails alone, is counted and logged by its own id, and has its share of the queue."""
    caplog.set_level(logging.INFO)

    async def requests() -> AsyncIterator[ModelInferRequest]:
        yield asking(b"The dogs are there.", model="copy.stream", id="one")
        yield asking_raw([b""], [1])
        yield asking(b"A cat.", b"A dog.", model="copy.stream", id="two")
        yield asking(b"A cat.", id="three")

    async with serving(log_requests=True) as server:
        responses = [one async for one in stub(server).ModelStreamInfer(requests())]
        by_id: dict[str, list[Any]] = {}
        for one in responses:
            by_id.setdefault(one.infer_response.id, []).append(one)
        *deltas, last = by_id["one"]
        assert b"".join(translations(one.infer_response)[0] for one in deltas) == b"The dogs are there."
        assert translations(last.infer_response) == [b"The dogs are there."]
        final = [one.infer_response.parameters["triton_final_response"].bool_param for one in by_id["one"]]
        assert final == [False] * len(deltas) + [True]
        assert "4 or more" in by_id[""][0].error_message
        assert "has 2 contents; a call takes 1" in by_id["two"][0].error_message
        assert translations(by_id["three"][0].infer_response) == [b"A cat."]
        await eventually(lambda: server.calls.running == 0)
        infer, stream = f"{SERVICE}/ModelInfer", f"{SERVICE}/ModelStreamInfer"
        counted = {code: server.metric("dragoman_rpc_requests_total", method=infer, code=code) for code in CODES}
        assert counted == {"OK": 2, "INVALID_ARGUMENT": 2}
        assert server.metric("dragoman_rpc_requests_total", method=stream, code="OK") == 1
        assert server.metric("dragoman_refusals_total", reason="TOO_MANY_CONTENTS") == 1
        logged = [vars(record)[FIELDS] for record in caplog.records]
        told = {call["request_id"]: (call["method"], call["code"]) for call in logged if call["method"] == infer}
        assert told["three"] == (infer, "OK") and told["two"] == (infer, "INVALID_ARGUMENT") and len(told) == 4


CODES = ("OK", "INVALID_ARGUMENT")


async def test_a_full_queue_and_a_drain_refuse_requests_and_no_stream() -> None:
    async with serving(max_rows=1, max_waiting=2) as server:
        sent = asyncio.Queue[ModelInferRequest | None]()

        async def requests() -> AsyncIterator[ModelInferRequest]:
            while (request := await sent.get()) is not None:
                yield request

        server.decoder.gate.close()
        stream = stub(server).ModelStreamInfer(requests())
        await sent.put(asking(b"A cat.", id="first"))
        await held(server)
        await sent.put(asking(b"One.", b"Two.", id="waits"))
        await eventually(lambda: server.model_metric("dragoman_requests_waiting") == 2)
        await sent.put(asking(b"One.", b"Two.", id="over"))
        refusal: Any = await stream.read()
        assert refusal.infer_response.id == "over" and "retry" in refusal.error_message
        assert refusal.infer_response.parameters["status"].string_param == "UNAVAILABLE"
        server.admission.close(Draining)
        await sent.put(asking(b"One.", id="late"))
        refusal = await stream.read()
        assert refusal.infer_response.parameters["reason"].string_param == "DRAINING"
        server.decoder.gate.open()
        answered: list[Any] = [await stream.read(), await stream.read()]
        assert {one.infer_response.id for one in answered} == {"first", "waits"}
        await sent.put(None)
        assert await stream.read() is grpc.aio.EOF


async def test_who_leaves_a_stream_leaves_its_requests() -> None:
    async def requests() -> AsyncIterator[ModelInferRequest]:
        for number in range(3):
            yield asking(b"A cat.", id=f"{number}")
        await asyncio.Event().wait()

    async with serving(max_rows=4) as server:
        server.decoder.gate.close()
        stream = stub(server).ModelStreamInfer(requests())
        reading = asyncio.ensure_future(stream.read())
        await held(server)
        await eventually(lambda: server.calls.running == 4)
        stream.cancel()
        await eventually(lambda: server.calls.running == 0)
        reading.cancel()
        server.decoder.gate.open()
        await eventually(lambda: server.model_metric("dragoman_rows_live") == 0)
        infer = f"{SERVICE}/ModelInfer"
        assert server.metric("dragoman_rpc_requests_total", method=infer, code="CANCELLED") == 3


async def statistics(server: Serving, name: str = "") -> dict[str, ModelStatistics]:
    found = await stub(server).ModelStatistics(ModelStatisticsRequest(name=name))
    return {one.name: one for one in found.model_stats}


async def test_statistics_are_of_each_model_and_add_up() -> None:
    async with serving() as server:
        await stub(server).ModelInfer(asking(b"A cat.", b"A dog."))
        await refused(stub(server).ModelInfer(asking(b" ")))
        await refused(stub(server).ModelInfer(asking(b"A cat.", model="zz")))
        requests = [asking(b"A cow.", model="copy.stream"), asking(b" ", model="copy.stream")]
        async for _ in stub(server).ModelStreamInfer(iter(requests)):
            pass
        found = await statistics(server)
        assert set(found) == {"copy", "copy.stream", "copy.encode"}
        assert await statistics(server, "copy") == {"copy": found["copy"]}
        for name, texts in (("copy", 2), ("copy.stream", 1), ("copy.encode", 0)):
            one, stats = found[name], found[name].inference_stats
            asked = min(texts, 1)
            assert (one.inference_count, one.execution_count, one.version) == (texts, asked, "1")
            assert (stats.success.count, stats.fail.count) == (asked, asked)
            phases = [stats.queue, stats.compute_input, stats.compute_infer, stats.compute_output]
            assert [phase.count for phase in phases] == [asked] * 4
            assert sum(phase.ns for phase in phases) <= stats.success.ns
            assert bool(stats.compute_infer.ns) == bool(one.last_inference) == bool(asked)
        error = await refused(stub(server).ModelStatistics(ModelStatisticsRequest(name="zz")))
        assert error.info.reason == "MODEL_NOT_FOUND"


async def test_who_leaves_counts_in_no_statistics() -> None:
    async with serving() as server:
        server.decoder.gate.close()
        call = stub(server).ModelInfer(asking(b"A cat."))
        await held(server)
        call.cancel()
        await eventually(lambda: server.calls.running == 0)
        server.decoder.gate.open()
        assert not (await statistics(server))["copy"].HasField("inference_stats")


def test_the_service_is_observed() -> None:
    assert SERVICE in OBSERVED
