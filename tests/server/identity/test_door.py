"""server.identity.door: who is let in, and as whom."""

from collections.abc import Mapping

import pytest

from server.api.scopes import computes, scopes_of
from server.errors import CallerNotListed, InvalidToken, NoCredentials, ScopeMissing
from server.identity.callers import Callers, CallersFile
from server.identity.door import ListedDoor, OpenDoor, check_scope
from server.identity.identity import Credentials, Identity, Scope
from server.identity.tokens import token_hash

LISTED: Mapping[str, object] = {"tok": {"tokens": [token_hash("t0k")]}, "cert.example": {"certificate": True}}
DOOR = ListedDoor(Callers(CallersFile.model_validate({"callers": LISTED})))


async def name(authorization: str | None = None, certificate: tuple[str, ...] | None = None) -> str:
    return (await DOOR.identify(Credentials("ipv4:10.0.0.1", authorization, certificate))).name


async def test_a_token_or_a_certificate_says_who_calls() -> None:
    assert await name("Bearer t0k") == await name("bearer  t0k ") == "tok"
    assert await name(certificate=("x.example", "cert.example")) == "cert.example"


async def test_a_token_goes_before_the_certificate_of_the_proxy_that_brings_it() -> None:
    assert await name("Bearer t0k", ("cert.example",)) == "tok"
    with pytest.raises(InvalidToken, match="nobody has it"):
        await name("Bearer wrong", ("cert.example",))


@pytest.mark.parametrize("authorization", ["t0k", "Basic t0k", "Bearer", "Bearer ", "", "Bearer\tt0k"])
async def test_another_scheme_is_refused(authorization: str) -> None:
    with pytest.raises(InvalidToken, match="must be: Bearer TOKEN"):
        await name(authorization)


async def test_who_shows_nothing_is_asked_for_a_token() -> None:
    with pytest.raises(NoCredentials, match="authorization: Bearer"):
        await name()


async def test_a_good_certificate_of_somebody_else_is_refused_by_name() -> None:
    with pytest.raises(CallerNotListed, match=r'"a\.example, b@example\.org"'):
        await name(certificate=("a.example", "b@example.org"))
    with pytest.raises(CallerNotListed):
        await name(certificate=())
    with pytest.raises(CallerNotListed):
        await name(certificate=("tok",))


async def test_where_nobody_is_listed_everybody_is_somebody() -> None:
    door = OpenDoor()
    for names, known_as in ((None, "ipv4:10.0.0.1"), ((), "ipv4:10.0.0.1"), (("a.example", "b"), "a.example")):
        identity = await door.identify(Credentials("ipv4:10.0.0.1", "Bearer any", names))
        assert (identity.name, identity.scopes) == (known_as, frozenset(Scope))


def test_a_call_needs_its_scope() -> None:
    check_scope(Identity("a", frozenset({Scope.ENCODE})), Scope.ENCODE)
    with pytest.raises(ScopeMissing, match='needs scope encode; "a" has models, translate') as caught:
        check_scope(Identity("a", frozenset({Scope.TRANSLATE, Scope.MODELS})), Scope.ENCODE)
    assert caught.value.metadata == {"caller": "a", "scope": "encode", "granted": "models, translate"}


def test_a_service_that_nobody_has_a_scope_for_needs_admin() -> None:
    assert scopes_of("dragoman.v1.EncodingService/Encode") == (Scope.ENCODE,)
    assert scopes_of("dragoman.v1.TranslationService/TranslateAndEncode") == (Scope.TRANSLATE, Scope.ENCODE)
    assert scopes_of("s.Other/Do") == (Scope.ADMIN,)


def test_methods_that_have_a_model_compute() -> None:
    for method in ("TranslationService/Translate", "EncodingService/StreamEncode", "TranslationService/ScoreTargets"):
        assert computes(f"dragoman.v1.{method}")
    assert computes("inference.GRPCInferenceService/ModelInfer")
    for method in ("dragoman.v1.ModelService/ListModels", "dragoman.v1.ModelService/Reload", "s.Other/Do"):
        assert not computes(method)
    assert not computes("inference.GRPCInferenceService/ServerLive")
