"""Who may call what, and how much of it, over gRPC: refusals as callers get them, and callers as logs have them."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from dragoman import AsyncClient, PermissionDenied, Unauthenticated
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.model_pb2 import ListModelsRequest
from dragoman.v1.translation_pb2 import TranslateAndEncodeRequest
from server.admission.quotas import Quota
from server.errors.retry import JITTER
from server.identity.callers import Callers, CallersFile
from server.identity.door import ListedDoor
from server.identity.tokens import token_hash
from tests.serving import Serving, eventually, refusal, refused, serving, stream_request, translate_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable


def door(**scopes: list[str]) -> ListedDoor:
    """Callers whose token is their name."""
    listed = {name: {"tokens": [token_hash(name)], "scopes": granted} for name, granted in scopes.items()}
    return ListedDoor(Callers(CallersFile.model_validate({"callers": listed})))


def bearer(token: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)


async def reflected(server: Serving, sent: "dict[str, Any]", *, granted: bool) -> object:
    """The answer of reflection.

    Who is refused sends no message: grpc.aio tells a write that comes after the refusal as its own INTERNAL, and
    forgets the status.
    """

    async def asked() -> "AsyncIterator[ServerReflectionRequest]":
        if not granted:
            await asyncio.Event().wait()
        yield ServerReflectionRequest(list_services="")

    channel: Any = server.channel  # whose types know the synchronous stub only
    reflection: Any = ServerReflectionStub(channel)
    return await reflection.ServerReflectionInfo(asked(), **sent).read()


def calls(server: Serving, token: str, granted: str = "") -> "dict[str, Awaitable[object]]":
    """One of every kind, by a caller who is granted one scope or none."""
    sent: Any = {"metadata": bearer(token)}
    return {
        "translate": server.translations.Translate(translate_request("A cat."), **sent),
        "stream": server.translations.StreamTranslate(stream_request("A cat."), **sent).read(),
        "encode": server.encodings.Encode(EncodeRequest(contents=["A cat."]), **sent),
        "models": server.models.ListModels(ListModelsRequest(), **sent),
        "admin": reflected(server, sent, granted=granted == "admin"),
    }


@pytest.mark.parametrize("scope", ["translate", "encode", "models", "admin"])
async def test_each_method_needs_its_scope(scope: str) -> None:
    async with serving(door=door(one=[scope])) as server:
        for name, call in calls(server, "one", scope).items():
            needed = {"stream": "translate"}.get(name, name)
            if needed == scope:
                await call
                continue
            told = await refused(call)
            assert (told.code, told.info.reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")
            assert dict(told.info.metadata) == {"caller": "one", "scope": needed, "granted": scope}


async def test_both_at_once_needs_both_scopes() -> None:
    listed = door(one=["translate"], other=["encode"], both=["translate", "encode"])
    request = TranslateAndEncodeRequest(contents=["A cat."], target_language_code="pt")
    async with serving(door=listed) as server:
        for name, needed in (("one", "encode"), ("other", "translate")):
            told = await refused(server.translations.TranslateAndEncode(request, metadata=bearer(name)))
            assert (told.info.reason, told.info.metadata["scope"]) == ("SCOPE_MISSING", needed)
        response = await server.translations.TranslateAndEncode(request, metadata=bearer("both"))
        assert len(response.translations) == len(response.embeddings) == 1


async def test_who_is_not_known_gets_nothing_but_health() -> None:
    async with serving(door=door(one=["translate"])) as server:
        for call in calls(server, "guess").values():
            told = await refused(call)
            assert (told.code, told.info.reason) == (grpc.StatusCode.UNAUTHENTICATED, "INVALID_TOKEN")
        told = await refused(server.translations.Translate(translate_request("A cat.")))
        assert (told.code, told.info.reason) == (grpc.StatusCode.UNAUTHENTICATED, "NO_CREDENTIALS")
        health: Any = HealthStub(server.channel)
        assert (await health.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
        assert server.metric("dragoman_refusals_total", reason="INVALID_TOKEN") == 5


async def test_a_message_is_looked_at_only_after_its_caller() -> None:
    async with serving(door=door(one=["translate"])) as server:
        channel: Any = server.channel
        raw = channel.unary_unary("/dragoman.v1.TranslationService/Translate")
        assert (await refused(raw(b"\x0a\x02\xff\xfe"))).info.reason == "NO_CREDENTIALS"


async def test_a_refusal_that_takes_long_to_be_sent_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("server.grpc.rpc.STATUS_TIMEOUT_S", 0)
    async with serving(door=door(one=["translate"])) as server:
        for call in calls(server, "guess").values():
            assert (await refused(call)).info.reason == "INVALID_TOKEN"
    assert not caplog.records


async def test_a_caller_whose_token_is_taken_away_is_refused_on_the_connection_it_has() -> None:
    let_in = door(one=["translate"])
    async with serving(door=let_in) as server:
        one: Any = {"metadata": bearer("one")}
        await server.translations.Translate(translate_request("A cat."), **one)
        let_in.callers = door(two=["translate"]).callers
        assert (await refused(server.translations.Translate(translate_request("A cat."), **one))).info.reason == (
            "INVALID_TOKEN"
        )


async def test_the_log_has_the_caller_and_no_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(log_requests=True, door=door(one=["translate", "models"])) as server:
        one: Any = {"metadata": bearer("one")}
        await server.translations.Translate(translate_request("A cat."), **one)
        await refused(server.translations.Translate(translate_request("A cat."), metadata=bearer("s3cret")))
    lines = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "call answered"]
    assert [(line["caller"], line["code"]) for line in lines] == [("one", "OK"), ("ipv4:127.0.0.1", "UNAUTHENTICATED")]
    assert "s3cret" not in str([vars(record) for record in caplog.records])


async def test_the_client_sends_a_token() -> None:
    async with serving(door=door(one=["translate", "models"])) as server:
        target, tokens = f"127.0.0.1:{server.port}", iter(["one\n", "one", "wrong"])
        async with AsyncClient(target, token=lambda: next(tokens)) as client:
            translated = await client.translate("A cat.", target_language="pt")
            streamed = [event async for event in client.stream_translate("A cat.", target_language="pt")]
            assert streamed[-1].text == translated.text
            with pytest.raises(Unauthenticated, match="nobody has it"):
                await client.models()
        async with AsyncClient(target, token="one") as client:
            with pytest.raises(PermissionDenied, match="needs scope encode") as caught:
                await client.encode("A cat.")
            assert caught.value.reason == "SCOPE_MISSING"


# Quotas


def stands_still() -> float:
    """A clock by which nobody gets room again, however slow the machine is."""
    return 0.0


async def test_a_caller_over_its_quota_is_told_both_numbers_and_when_to_come_back() -> None:
    own, quota = door(one=["translate"], two=["translate"]), Quota(texts_per_s=2.0)
    async with serving(door=own, quota=quota, quota_clock=stands_still) as server:
        one: Any = {"metadata": bearer("one")}
        two: Any = {"metadata": bearer("two")}
        await server.translations.Translate(translate_request("A cat.", "A dog."), **one)
        told = await refused(server.translations.Translate(translate_request("A bird."), **one))
        assert (told.code, told.info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        assert (told.info.metadata["asked"], told.info.metadata["limit"]) == ("1", "2")
        assert told.retry_delay_s is not None and 0 < told.retry_delay_s <= 0.5 * (1 + JITTER) + 0.001
        await server.translations.Translate(translate_request("A bird."), **two)


async def test_a_stream_is_a_call_under_way_until_it_ends() -> None:
    async with serving(quota=Quota(calls=1)) as server:
        server.decoder.gate.close()
        stream = server.translations.StreamTranslate(stream_request("A cat."))
        await eventually(lambda: server.metric("dragoman_caller_calls", caller="other") == 1)
        told = await refused(server.models.ListModels(ListModelsRequest()))
        assert (told.info.reason, told.info.metadata["quota"]) == ("QUOTA_EXCEEDED", "calls")
        server.decoder.gate.open()
        await stream.read()
        stream.cancel()
        await eventually(lambda: server.metric("dragoman_caller_calls", caller="other") == 0)
        await server.models.ListModels(ListModelsRequest())


async def test_a_setting_names_the_metadata_that_names_callers() -> None:
    async with serving(quota=Quota(texts_per_s=1.0), quota_clock=stands_still, caller_key="x-tenant") as server:

        async def ask(**metadata: str) -> str:
            sent: Any = {"metadata": tuple((key.replace("_", "-"), value) for key, value in metadata.items())}
            try:
                await server.translations.Translate(translate_request("A cat."), **sent)
            except grpc.aio.AioRpcError as error:
                return refusal(error).info.metadata["caller"]
            return "OK"

        assert [await ask(x_tenant="acme") for _ in range(2)] == ["OK", "x-tenant=acme"]
        assert await ask(x_tenant="other") == "OK"
        assert [await ask(x_tenant="a b"), await ask()] == ["OK", "ipv4:127.0.0.1"]  # no name: the host


async def test_a_metadata_key_names_nobody_unless_a_setting_says_so() -> None:
    async with serving(quota=Quota(texts_per_s=1.0), quota_clock=stands_still) as server:
        for tenant, reason in (("a", None), ("b", "QUOTA_EXCEEDED")):
            sent: Any = {"metadata": (("x-tenant", tenant),)}
            call = server.translations.Translate(translate_request("A cat."), **sent)
            if reason is None:
                await call
            else:
                assert (await refused(call)).info.reason == reason


async def test_the_client_waits_until_its_quota_has_room() -> None:
    """By the quota's clock a second has gone by when it has been refused."""

    def refused() -> float:
        return server.metric("dragoman_caller_refusals_total", caller="other", quota="texts_per_s")

    async with serving(quota=Quota(texts_per_s=4.0), quota_clock=refused) as server:
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            texts = [f"Cat {number}." for number in range(8)]
            answers = [await client.translate(text, target_language="pt") for text in texts]
        assert [answer.text for answer in answers] == texts
        assert refused() == 1
