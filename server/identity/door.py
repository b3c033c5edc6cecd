"""The door: who makes a call, and whether they may make it."""

from typing import Protocol

from server.errors import CallerNotListed, InvalidToken, NoCredentials, ScopeMissing
from server.identity.callers import Callers
from server.identity.identity import Credentials, Identity, Scope

BEARER = "bearer"
ALL_SCOPES = frozenset(Scope)


class Door(Protocol):
    """Says who makes a call."""

    async def identify(self, credentials: Credentials) -> Identity:
        """Raises NoCredentials, InvalidToken or CallerNotListed."""
        ...


class OpenDoor:
    """Everybody may enter, and is known by the first name of their certificate, or by their address."""

    async def identify(self, credentials: Credentials) -> Identity:
        """Raises nothing."""
        names = credentials.certificate_names
        return Identity(names[0] if names else credentials.address, ALL_SCOPES)


class ListedDoor:
    """Those of a list may enter."""

    def __init__(self, callers: Callers) -> None:
        self.callers = callers
        """May be replaced at any time, by any thread."""

    async def identify(self, credentials: Credentials) -> Identity:
        """By the token, or by the certificate of who sends none.

        Raises NoCredentials, InvalidToken or CallerNotListed.
        """
        if credentials.authorization is not None:
            identity = self.callers.by_token(bearer_token(credentials.authorization))
            if identity is None:
                raise InvalidToken("nobody has it, or has it any more")
            return identity
        if credentials.certificate_names is None:
            raise NoCredentials
        identity = self.callers.by_certificate(credentials.certificate_names)
        if identity is None:
            raise CallerNotListed(credentials.certificate_names)
        return identity


def bearer_token(authorization: str) -> str:
    """What follows the scheme. Raises InvalidToken for another scheme."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != BEARER or not token:
        raise InvalidToken("authorization must be: Bearer TOKEN")
    return token.strip()


def check_scope(identity: Identity, scope: Scope) -> None:
    """Raises ScopeMissing."""
    if scope not in identity.scopes:
        raise ScopeMissing(identity.name, scope, sorted(identity.scopes))
