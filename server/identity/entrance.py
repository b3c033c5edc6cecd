"""What a call passes before its request is worked on, by whichever face it comes."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar

from server.admission.quotas import Quotas
from server.identity.door import Door, OpenDoor, check_scope
from server.identity.identity import Credentials, Identity, Scope
from server.telemetry.calls import REQUEST_ID, current_call

_entered: ContextVar[Identity] = ContextVar("entered")


class Entrance:
    """Lets calls in whose caller is known, may make them, and has a quota left."""

    def __init__(self, door: Door | None = None, quotas: Quotas | None = None, caller_key: str | None = None) -> None:
        """door: says who calls. None: everybody may. quotas: None: callers have none.

        caller_key: metadata that names a caller without an identity
        """
        self._door, self._quotas, self._caller_key = door or OpenDoor(), quotas, caller_key

    @asynccontextmanager
    async def entered(self, credentials: Credentials, scopes: Iterable[Scope]) -> AsyncIterator[None]:
        """Inside of it the call runs; all scopes are needed. Raises ServerError."""
        identity = await self._door.identify(credentials)
        current_call().caller = identity.name
        _entered.set(identity)
        for scope in scopes:
            check_scope(identity, scope)
        with nullcontext() if self._quotas is None else self._quotas.running(identity.name, identity.quota):
            yield

    def address(self, host: str, metadata: Mapping[str, str]) -> str:
        """What a caller without an identity is known by."""
        named = metadata.get(self._caller_key, "") if self._caller_key else ""
        return f"{self._caller_key}={named}" if REQUEST_ID.fullmatch(named) else host


def require(scope: Scope) -> None:
    """Of the caller of the call that runs: for what only its request says. Raises ScopeMissing."""
    check_scope(_entered.get(), scope)
