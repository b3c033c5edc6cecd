"""What a call passes before its request is worked on, by whichever face it comes."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar

from server.admission.quotas import Quotas, Running
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

    def entered(self, credentials: Credentials, scopes: Iterable[Scope]) -> "Entered":
        """An async context in which the call runs; all scopes are needed. Raises ServerError when it is entered."""
        return Entered(self, credentials, scopes)

    async def enter(self, credentials: Credentials, scopes: Iterable[Scope]) -> Running | None:
        """The call is under way until what this gives is left. None: calls are not counted. Raises ServerError."""
        identity = await self._door.identify(credentials)
        current_call().caller = identity.name
        _entered.set(identity)
        for scope in scopes:
            check_scope(identity, scope)
        return None if self._quotas is None else self._quotas.running(identity.name, identity.quota)

    def address(self, host: str, metadata: Mapping[str, str]) -> str:
        """What a caller without an identity is known by."""
        named = metadata.get(self._caller_key, "") if self._caller_key else ""
        return f"{self._caller_key}={named}" if REQUEST_ID.fullmatch(named) else host


class Entered:
    """What a call runs in that was let in."""

    __slots__ = ("_credentials", "_entrance", "_running", "_scopes")

    def __init__(self, entrance: Entrance, credentials: Credentials, scopes: Iterable[Scope]) -> None:
        self._entrance, self._credentials, self._scopes = entrance, credentials, scopes

    async def __aenter__(self) -> None:
        self._running = await self._entrance.enter(self._credentials, self._scopes)

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.__exit__()


def require(scope: Scope) -> None:
    """Of the caller of the call that runs: for what only its request says. Raises ScopeMissing."""
    check_scope(_entered.get(), scope)
