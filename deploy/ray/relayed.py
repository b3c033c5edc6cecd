"""What goes between an entry and a replica: a request in bytes with what is known of its call, and what came of it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from deploy.ray.arguments import Group
from server.catalog.served_model import ServedModel
from server.errors import InternalError, ServerError
from server.telemetry.calls import REQUEST_ID_KEY, AnsweredContent, Call
from server.telemetry.observed import BULK, CLASS_KEY


@dataclass(frozen=True, slots=True)
class Described:
    """A replica: what it was told, by which an entry knows one of a former deployment, and its models."""

    group: Group
    models: list[ServedModel]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    method: str
    """SERVICE/METHOD."""
    request: bytes
    metadata: Mapping[str, str]
    caller: str
    left_s: float | None
    """How long its caller waits. A time of a clock would mean nothing on another node."""

    @classmethod
    def of(cls, method: str, request: bytes, call: Call) -> Self:
        """As a call that has come in asks."""
        metadata = {REQUEST_ID_KEY: call.request_id, **({CLASS_KEY: BULK} if call.bulk else {})}
        left_s = None if call.deadline is None else call.deadline - time.perf_counter()
        return cls(method, request, metadata, call.caller, left_s)


@dataclass(frozen=True, slots=True)
class Answered:
    """The response, and what is told of the call in the log, the trace and after the answer."""

    response: bytes
    model: str
    labels: Mapping[str, str]
    contents: list[AnsweredContent]
    started: float
    """By the clock of the replica, as the times of the contents."""

    @classmethod
    def by(cls, call: Call, response: bytes = b"") -> Self:
        """The end of a stream has no response."""
        return cls(response, call.model, call.labels, call.contents, call.started)

    def tell(self, call: Call, sent: float) -> None:
        """Adds what is known to the call as the entry knows it, which asked at `sent`."""
        later = sent - self.started
        call.model, call.labels = self.model, self.labels
        call.contents += [
            content._replace(
                tokenized=content.tokenized + later,
                arrived=content.arrived + later,
                detokenized=content.detokenized + later,
            )
            for content in self.contents
        ]


@dataclass(frozen=True, slots=True)
class Refused:
    """A ServerError: its class is known by its reason."""

    reason: str
    message: str
    metadata: Mapping[str, str]
    field: str | None
    retry_after_s: float | None

    @classmethod
    def by(cls, error: ServerError) -> Self:
        return cls(error.reason, error.message, error.metadata, error.field, error.retry_after_s)

    def error(self) -> ServerError:
        """The same error."""
        kind = _kinds(ServerError).get(self.reason, InternalError)
        error = kind.__new__(kind)
        ServerError.__init__(error, self.message, self.metadata, self.field, self.retry_after_s)
        return error


def _kinds(above: type[ServerError]) -> dict[str, type[ServerError]]:
    """By their reasons."""
    kinds: dict[str, type[ServerError]] = {}
    for kind in above.__subclasses__():
        kinds |= {kind.reason: kind} if "reason" in vars(kind) else {}
        kinds |= _kinds(kind)
    return kinds


class RelayedCaller:
    """Whoever called at an entry: a `Caller`."""

    system = "ray"

    def __init__(self, asked: Asked) -> None:
        self.metadata, self.name = asked.metadata, asked.caller
        self.deadline = None if asked.left_s is None else time.perf_counter() + asked.left_s
        self.refused: Refused | None = None
        """The answer, where it is an error."""

    def tell(self, call: Call) -> None:
        """The entry does."""

    async def refuse(self, call: Call, error: ServerError) -> None:
        """Lets the entry do so."""
        self.refused = Refused.by(error)

    def leaving(self) -> str:
        return "CANCELLED"
