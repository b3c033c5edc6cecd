"""server.identity.json_web_tokens: real tokens, of keys that a real HTTP server gives out."""

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from server.config import ConfigError, load_settings
from server.errors import InvalidToken, NoCredentials
from server.identity.callers import Callers, CallersFile
from server.identity.door import Door, ListedDoor
from server.identity.identity import Credentials, Identity, Scope
from server.identity.json_web_tokens import ASK_AGAIN_S, LEEWAY_S, MAX_BYTES, MAX_KEYS, MOST_KNOWN, IssuerKeys, JwtDoor
from server.identity.opening import open_door
from server.identity.tokens import token_hash

ISSUER, AUDIENCE = "https://issuer.example", "dragoman"
PRIVATE: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
NOBODY = ListedDoor(Callers(CallersFile()))


def public(algorithm: str, name: str) -> dict[str, Any]:
    """A key as the issuer gives it out."""
    kinds: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}
    told: dict[str, Any] = json.loads(kinds[algorithm].to_jwk(PRIVATE[algorithm].public_key()))
    return told | {"kid": name, "alg": algorithm, "use": "sig"}


KEYS = {"keys": [public(algorithm, algorithm) for algorithm in PRIVATE]}


def token(algorithm: str = "RS256", kid: str | None = None, **changed: Any) -> str:
    """A good token, but for what is changed. None leaves a claim out."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 100_000}
    claims["scope"] = "openid translate models"
    told = {name: value for name, value in (claims | changed).items() if value is not None}
    return jwt.encode(told, PRIVATE[algorithm], algorithm, headers={"kid": algorithm if kid is None else kid})


@dataclass
class Issuer:
    """What its server answers."""

    body: bytes = json.dumps(KEYS).encode()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    url: str = ""


@contextmanager
def issuer() -> Iterator[Issuer]:
    told = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked += 1
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told.body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.url = f"http://127.0.0.1:{server.server_port}/keys"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield told
        server.shutdown()
        thread.join()


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(KEYS))
    return file


async def identify(door: Door, authorization: str | None) -> Identity:
    return await door.identify(Credentials("ipv4:10.0.0.1", authorization))


def jwt_door(place: str | Path, others: Door = NOBODY) -> JwtDoor:
    return JwtDoor(IssuerKeys(str(place)), ISSUER, AUDIENCE, others)


@pytest.mark.parametrize("algorithm", PRIVATE)
async def test_a_good_token_names_its_subject_and_scopes(algorithm: str, keys_file: Path) -> None:
    door = jwt_door(keys_file)
    for _ in range(2):  # the second time it is known
        identity = await identify(door, f"Bearer {token(algorithm)}")
        assert identity == Identity("jwt:alice", frozenset({Scope.TRANSLATE, Scope.MODELS}))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"exp": 10**9}, "expired"),
        ({"nbf": 2**33}, "not valid yet"),
        ({"aud": "somebody"}, "for somebody else"),
        ({"iss": "https://evil.example"}, "from somebody else"),
        *[({claim: None}, "it lacks a claim|somebody else") for claim in ("exp", "iss", "aud", "sub")],
        *[({"exp": odd}, "claims are not") for odd in (str(2**40), math.inf, [2**40])],
        *[({"nbf": odd}, "claims are not") for odd in (math.inf, [1])],
        ({"sub": "a b"}, "visible ASCII"),
        ({"sub": "x" * 300}, "visible ASCII"),
        ({"kid": "other"}, "no key of the name"),
        ({"kid": ""}, "no key of the name"),
        ({"kid": "ES256"}, "signature"),
    ],
)
async def test_what_is_not_as_it_must_be_is_refused(changed: dict[str, Any], told: str, keys_file: Path) -> None:
    with pytest.raises(InvalidToken, match=told) as caught:
        await identify(jwt_door(keys_file), f"Bearer {token(**changed)}")
    assert "eyJ" not in caught.value.message


async def test_a_token_that_chooses_its_algorithm_is_refused(keys_file: Path) -> None:
    door, claims = jwt_door(keys_file), {"iss": ISSUER, "aud": AUDIENCE, "sub": "eve", "exp": time.time() + 600}
    secret = KEYS["keys"][0]["n"]  # the public key as a shared secret
    nothing: Any = None
    forged = [
        jwt.encode(claims, nothing, "none", headers={"kid": "RS256"}),
        jwt.encode(claims, secret, "HS256", headers={"kid": "RS256"}),
        jwt.encode(claims, PRIVATE["RS256"], "RS512", headers={"kid": "RS256"}),
        jwt.encode(claims, PRIVATE["RS256"], "RS256", headers={"kid": "RS256", "crit": ["odd"], "odd": 1}),  # RFC 7515
        token().rpartition(".")[0] + ".",
        "a.b.c",
        "..",
    ]
    for each in forged:
        with pytest.raises(InvalidToken):
            await identify(door, f"Bearer {each}")


async def test_no_scope_is_no_scope(keys_file: Path) -> None:
    for scope in (None, "", "openid", ["translate"]):
        identity = await identify(jwt_door(keys_file), f"Bearer {token(scope=scope)}")
        assert identity.scopes == frozenset()


async def test_other_credentials_are_the_other_door_s(keys_file: Path) -> None:
    listed = CallersFile.model_validate({"callers": {"alice": {"tokens": [token_hash("t0k")]}}})
    door = jwt_door(keys_file, ListedDoor(Callers(listed)))
    assert (await identify(door, "Bearer t0k")).name == "alice"
    assert (await identify(door, f"Bearer {token()}")).name == "jwt:alice"
    with pytest.raises(NoCredentials):
        await identify(door, None)


async def test_tokens_that_are_remembered_end_nevertheless_and_are_not_too_many(
    keys_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = int(time.time())

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls.fromtimestamp(now_s, tz)

    monkeypatch.setattr("jwt.api_jwt.datetime", Clock)
    monkeypatch.setattr("server.identity.json_web_tokens.time", SimpleNamespace(time=lambda: now_s))
    door = jwt_door(keys_file)
    short = token(exp=now_s - LEEWAY_S + 3)
    for _ in range(3):
        await identify(door, f"Bearer {short}")
        now_s += 1
    with pytest.raises(InvalidToken, match="expired"):
        await identify(door, f"Bearer {short}")
    for number in range(MOST_KNOWN + 10):
        await identify(door, f"Bearer {token('EdDSA', sub=str(number))}")
    assert len(door._known) == MOST_KNOWN


# Keys


async def test_a_new_key_is_asked_for_when_a_token_names_it_but_not_often() -> None:
    with issuer() as asked:
        now = 1000.0
        asked.body = json.dumps({"keys": [public("RS256", "RS256")]}).encode()
        keys = IssuerKeys(asked.url, lambda: now)
        door = JwtDoor(keys, ISSUER, AUDIENCE, NOBODY)
        await identify(door, f"Bearer {token()}")
        asked.body = json.dumps(KEYS).encode()
        for _ in range(5):
            with pytest.raises(InvalidToken, match="no key of the name"):
                await identify(door, f"Bearer {token('ES256')}")
        assert asked.asked == 1
        now += ASK_AGAIN_S
        found = await asyncio.gather(*(identify(door, f"Bearer {token('ES256')}") for _ in range(5)))
        assert [identity.name for identity in found] == ["jwt:alice"] * 5
        assert asked.asked == 2


async def test_a_key_that_is_taken_away_lets_nobody_in(keys_file: Path) -> None:
    keys = IssuerKeys(str(keys_file))
    door, good = JwtDoor(keys, ISSUER, AUDIENCE, NOBODY), f"Bearer {token()}"
    await identify(door, good)
    keys_file.write_text(json.dumps({"keys": [public("ES256", "ES256")]}))
    keys.load()
    with pytest.raises(InvalidToken, match="no key of the name"):
        await identify(door, good)


async def test_an_issuer_that_fails_leaves_its_keys_in_use() -> None:
    with issuer() as asked:
        keys = IssuerKeys(asked.url)
        asked.status = 500
        with pytest.raises(ConfigError, match="HTTP Error 500"):
            keys.load()
        asked.status, asked.headers = 302, {"Location": asked.url}
        with pytest.raises(ConfigError, match="HTTP Error 302"):
            keys.load()
        asked.status, asked.headers, asked.body = 200, {}, b" " * (MAX_BYTES + 1)
        with pytest.raises(ConfigError, match=f"more than {MAX_BYTES} bytes"):
            keys.load()
        asked.headers, asked.body = {"Transfer-Encoding": "chunked"}, b"no length\r\n"
        with pytest.raises(ConfigError, match=r"keys cannot be used: IncompleteRead\("):
            keys.load()
        assert await keys.find("RS256") is not None


async def test_a_server_starts_without_its_issuer(caplog: pytest.LogCaptureFixture) -> None:
    with issuer() as gone:
        pass
    keys = IssuerKeys(gone.url)
    assert await keys.find("RS256") is None
    assert "cannot be used" in caplog.text


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("nonsense", "cannot be used"),
        ("[" * 100_000, "cannot be used: maximum recursion depth"),
        ("[]", "no JSON Web Key Set"),
        ('{"keys": []}', "no key with a name"),
        (json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"}]}), "no key with a name"),
        (json.dumps({"keys": [public("RS256", "a") | {"use": "enc"}]}), "no key with a name"),
        (json.dumps({"keys": [{}] * (MAX_KEYS + 1)}), f"{MAX_KEYS + 1} keys; {MAX_KEYS} are"),
        ('{"keys": [1, null, {"kty": "RSA"}]}', "no key with a name"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(body: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(body)
    with pytest.raises(ConfigError, match=told):
        IssuerKeys(str(tmp_path / "keys"))


def test_keys_that_are_not_there_are_named_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        IssuerKeys(str(tmp_path / "none"))
    assert str(refused.value) == f"jwt_keys {tmp_path / 'none'} cannot be used: No such file or directory"


@pytest.mark.parametrize("url", ["http://issuer.example/keys", "ftp://127.0.0.1/keys", "file:///etc/passwd"])
def test_keys_come_by_https(url: str) -> None:
    with pytest.raises(ConfigError, match="neither a file nor an https:// URL"):
        IssuerKeys(url)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://issuer.example:port/", "is no URL: Port could not be cast to integer value as 'port'"),
        ("https://issuer.example:99999/", "is no URL: Port out of range 0-65535"),
        ("https://[::1/", "is no URL: Invalid IPv6 URL"),
        ("https://", "cannot be asked: expected https://HOST:PORT/PATH in ASCII, without a user"),
        ("https://issuer.example:0/", "cannot be asked: expected"),
        ("https://issuer example/", "cannot be asked: expected"),
        ("https://issuer.example/schl\u00fcssel", "cannot be asked: expected"),
        ("https://user@issuer.example/", "cannot be asked: expected"),
    ],
)
def test_a_url_that_nobody_could_answer_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        IssuerKeys(url)
    assert str(refused.value).startswith(f"jwt_keys {url} {told}")


# Settings


def test_the_settings_make_the_door(keys_file: Path) -> None:
    flags = ["--jwt-keys", str(keys_file), "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE]
    door, sources = open_door(load_settings(flags))
    assert isinstance(door, JwtDoor)
    assert [(source.name, list(source.files)) for source in sources] == [("jwt_keys", [keys_file])]
    with pytest.raises(ConfigError, match="jwt_keys, jwt_issuer and jwt_audience need each other"):
        load_settings(flags[:4])


def test_what_is_not_installed_is_named(keys_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "server.identity.json_web_tokens", None)
    flags = ["--jwt-keys", str(keys_file), "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE]
    with pytest.raises(ConfigError, match=r"PyJWT is not installed: pip install '\.\[jwt\]'"):
        open_door(load_settings(flags))
