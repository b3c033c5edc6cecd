"""Bearer tokens: 256 random bits. The server keeps their SHA-256 alone: what is random needs no salt or slow hash."""

import hashlib
import hmac
import secrets
from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

PREFIX = "dragoman_"
"""Of every token, by which scanners for secrets that leaked can know one."""
BITS = 256
SCHEME = "sha256:"
INDEXED = 8
"""Bytes of a hash by which it is looked up. How long that takes tells of a hash, from which no token can be made."""


def new_token() -> str:
    """One that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(BITS // 8)


def token_hash(token: str) -> str:
    """What a file of callers has of a token."""
    return SCHEME + _digest(token).hex()


class TokenTable(Generic[T]):
    """Whose token is whose."""

    def __init__(self, owners: Iterable[tuple[str, T]]) -> None:
        """Hashes, as `token_hash` writes them, and whose they are."""
        self._owners = defaultdict[bytes, list[tuple[bytes, T]]](list)
        for written, owner in owners:
            digest = bytes.fromhex(written.removeprefix(SCHEME))
            self._owners[digest[:INDEXED]].append((digest, owner))

    def owner(self, token: str) -> T | None:
        """Whose it is. Hashes are compared in constant time."""
        digest = _digest(token)
        for known, owner in self._owners.get(digest[:INDEXED], ()):
            if hmac.compare_digest(known, digest):
                return owner
        return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
