"""JSON Web Tokens (RFC 7519) of an issuer that others run, by PyJWT. An extra: see pyproject.toml."""

import asyncio
import hashlib
import json
import logging
import re
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt

from server.config import ConfigError
from server.errors import InvalidToken
from server.identity.door import Door, bearer_token
from server.identity.identity import Credentials, Identity, Scope
from server.identity.reloads import Source
from server.identity.tls import is_loopback

log = logging.getLogger(__name__)

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Those with a public key. A key signs by one of them, which its token does not choose."""
CLAIMS = ["exp", "iss", "aud", "sub"]
"""A token without one of them is refused."""
LEEWAY_S = 10
"""Clocks may differ by so much."""
PREFIX = "jwt:"
"""Of the names of callers with such a token: an issuer names nobody of the server's own list."""
SUBJECT = re.compile(r"[!-~]{1,256}")
VISIBLE = re.compile(r"[!-~]+")
MAX_BYTES, MAX_KEYS, TIMEOUT_S = 1024 * 1024, 256, 5.0
"""Of a set of keys, and of the connection that it comes by."""
ASK_AGAIN_S = 10.0
"""How often at most, if tokens name keys that it has not."""
MOST_KNOWN = 1024
"""Tokens that are remembered as good: a signature takes a tenth of a millisecond to verify."""

REASONS: Mapping[type[Exception], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it is not valid yet",
    jwt.InvalidAudienceError: "it is for somebody else (aud)",
    jwt.InvalidIssuerError: "it is from somebody else (iss)",
    jwt.MissingRequiredClaimError: f"it lacks a claim; it needs {', '.join(CLAIMS)}",
}


class IssuerKeys:
    """A JSON Web Key Set (RFC 7517), of a file or a URL, as it was read last."""

    def __init__(self, place: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError, but not for an issuer that does not answer: it may later."""
        remote = "://" in place
        self.source = Source("jwt_keys", [] if remote else [Path(place)], self.load)
        self._place, self._remote, self._clock = place, remote, clock
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._asked_s = -ASK_AGAIN_S
        self._asking = asyncio.Lock()
        if remote:
            _check_url(place)
            self._try()
        else:
            self.source.read()

    def load(self) -> None:
        """Reads the keys, on any thread. Raises ConfigError, and then keeps those it had."""
        self._asked_s = self._clock()
        try:
            data = _fetch(self._place) if self._remote else _read(Path(self._place))
            if len(data) > MAX_BYTES:
                raise ConfigError(f"jwt_keys {self._place} has more than {MAX_BYTES} bytes, the most that are read")
            self._keys = _usable(json.loads(data))
        except (OSError, HTTPException, ValueError, RecursionError, jwt.PyJWTError) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ConfigError(f"jwt_keys {self._place} cannot be used: {why}") from error

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """The key of that name. Asks for new ones where there is none, but not often. None: there is none."""
        if key_id not in self._keys:
            async with self._asking:
                if key_id not in self._keys and self._clock() - self._asked_s >= ASK_AGAIN_S:
                    await asyncio.to_thread(self._try)
        return self._keys.get(key_id)

    def _try(self) -> None:
        try:
            self.load()
        except ConfigError as error:
            log.error("%s", error)


class JwtDoor:
    """Those may enter who have a token of the issuer; who has none is another door's."""

    def __init__(self, keys: IssuerKeys, issuer: str, audience: str, others: Door) -> None:
        self._keys, self._issuer, self._audience, self._others = keys, issuer, audience, others
        self._known: OrderedDict[bytes, tuple[jwt.PyJWK, float, Identity]] = OrderedDict()
        """By the hash of a good token: the key that it is good by, when it ends, and whose it is."""

    async def identify(self, credentials: Credentials) -> Identity:
        """Raises NoCredentials, InvalidToken or CallerNotListed."""
        if credentials.authorization is None:
            return await self._others.identify(credentials)
        token = bearer_token(credentials.authorization)
        if token.count(".") != 2:
            return await self._others.identify(credentials)
        try:
            key = await self._keys.find(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                raise InvalidToken("its issuer has no key of the name that it gives (kid)")
            return self._verified(token, key)
        except (jwt.PyJWTError, OverflowError, TypeError) as error:  # the latter of times that are no numbers
            raise InvalidToken(
                REASONS.get(type(error), "its signature or its claims are not as they must be")
            ) from None

    def _verified(self, token: str, key: jwt.PyJWK) -> Identity:
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and known[0] is key and time.time() < known[1]:
            self._known.move_to_end(digest)
            return known[2]
        claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=self._audience,
            issuer=self._issuer,
            leeway=LEEWAY_S,
            options={"require": CLAIMS},
        )
        if not SUBJECT.fullmatch(claims["sub"]):
            raise InvalidToken("its subject (sub) must be 1 to 256 visible ASCII characters, no space")
        identity = Identity(PREFIX + claims["sub"], _scopes(claims))
        self._known[digest] = key, claims["exp"] + LEEWAY_S, identity
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return identity


def _scopes(claims: Mapping[str, Any]) -> frozenset[Scope]:
    """Of `scope` (RFC 8693), words in a string. Words that we do not know are somebody else's."""
    granted = claims.get("scope", "")
    words = set(granted.split()) if isinstance(granted, str) else set()
    return frozenset(scope for scope in Scope if scope.value in words)


def _usable(keys: Any) -> Mapping[str, jwt.PyJWK]:
    """Those with a name that verify signatures by one of ALGORITHMS. Raises ValueError where there are none."""
    if not isinstance(keys, dict) or not isinstance(keys.get("keys"), list):
        raise ValueError('it is no JSON Web Key Set: {"keys": [...]}')
    if len(keys["keys"]) > MAX_KEYS:
        raise ValueError(f"it has {len(keys['keys'])} keys; {MAX_KEYS} are the most that are read")
    found = {}
    for one in keys["keys"]:
        try:
            key = jwt.PyJWK(one)
        except (jwt.PyJWTError, AttributeError, TypeError):  # somebody else's kind of key
            continue
        if key.key_id and key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig"):
            found[key.key_id] = key
    if not found:
        raise ValueError("it has no key with a name (kid) that verifies signatures")
    return found


def _check_url(url: str) -> None:
    """Raises ConfigError. Who could change what comes by it could let anybody in."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"jwt_keys {url} is no URL: {error}") from error
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ConfigError(f"jwt_keys {url} is neither a file nor an https:// URL")
    if not parts.hostname or port == 0 or "@" in parts.netloc or not VISIBLE.fullmatch(url):
        raise ConfigError(f"jwt_keys {url} cannot be asked: expected https://HOST:PORT/PATH in ASCII, without a user")


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MAX_BYTES + 1)


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(url, timeout=TIMEOUT_S) as answer:
        data: bytes = answer.read(MAX_BYTES + 1)
    return data


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from where the settings say."""

    def redirect_request(self, *_: Any) -> None:
        return None
