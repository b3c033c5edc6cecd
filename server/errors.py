"""Every error that a caller can be told of.

    ServerError                     expected: the server is well, and says why it does not answer
    ├── InvalidRequest              INVALID_ARGUMENT    the request can never be answered as it is; names the field
    │   ├── EmptyContents           EMPTY_CONTENTS
    │   ├── BlankContent            BLANK_CONTENT
    │   ├── TooManyContents         TOO_MANY_CONTENTS
    │   ├── SourceTooLong           SOURCE_TOO_LONG
    │   ├── NoTargets               NO_TARGETS
    │   ├── TooManyTargets          TOO_MANY_TARGETS
    │   ├── TargetTooLong           TARGET_TOO_LONG
    │   ├── LanguageNotSupported    LANGUAGE_NOT_SUPPORTED
    │   ├── OptionOutOfRange        OPTION_OUT_OF_RANGE
    │   ├── OptionsConflict         OPTIONS_CONFLICT
    │   ├── PhraseNotWritable       PHRASE_NOT_WRITABLE
    │   ├── PoolingsConflict        POOLINGS_CONFLICT
    │   ├── PromptNotSupported      PROMPT_NOT_SUPPORTED
    │   ├── TooManyLabels           TOO_MANY_LABELS
    │   ├── LabelTooLong            LABEL_TOO_LONG
    │   └── InvalidMessage          INVALID_MESSAGE
    ├── NoCredentials               UNAUTHENTICATED     NO_CREDENTIALS
    ├── InvalidToken                UNAUTHENTICATED     INVALID_TOKEN
    ├── CallerNotListed             PERMISSION_DENIED   CALLER_NOT_LISTED
    ├── ScopeMissing                PERMISSION_DENIED   SCOPE_MISSING
    ├── QuotaExceeded               RESOURCE_EXHAUSTED  QUOTA_EXCEEDED
    ├── MessageTooLarge             RESOURCE_EXHAUSTED  MESSAGE_TOO_LARGE
    ├── VectorsTooLarge             RESOURCE_EXHAUSTED  VECTORS_TOO_LARGE
    ├── OutOfMemory                 RESOURCE_EXHAUSTED  OUT_OF_MEMORY
    ├── ModelNotFound               NOT_FOUND           MODEL_NOT_FOUND
    ├── ServiceNotFound             NOT_FOUND           SERVICE_NOT_FOUND
    ├── DoesNotTranslate            FAILED_PRECONDITION DOES_NOT_TRANSLATE
    ├── DoesNotScore                FAILED_PRECONDITION DOES_NOT_SCORE
    ├── OptionNotOffered            FAILED_PRECONDITION OPTION_NOT_OFFERED
    ├── ExtraMissing                FAILED_PRECONDITION EXTRA_MISSING
    ├── RequestStalled              ABORTED             REQUEST_STALLED
    ├── StreamStalled               ABORTED             STREAM_STALLED
    ├── Unavailable                 UNAVAILABLE         the same request may be answered later, or by another server
    │   ├── Overloaded              OVERLOADED
    │   ├── WouldBeLate             WOULD_BE_LATE
    │   ├── Draining                DRAINING
    │   └── EngineStopped           ENGINE_STOPPED
    ├── EngineFailed                INTERNAL            ENGINE_FAILED
    ├── Quarantined                 INTERNAL            QUARANTINED
    └── NotFinite                   INTERNAL            NOT_FINITE
    InternalError                   INTERNAL            INTERNAL: unexpected, a defect of the server; its log has more

The right-hand names are the `reason` of google.rpc.ErrorInfo. They, and the keys of `metadata`, keep their meaning.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import ClassVar, Literal

Status = Literal[
    "INVALID_ARGUMENT",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "ABORTED",
    "UNAVAILABLE",
    "INTERNAL",
]
"""Name of a gRPC status code."""

SHOWN = 64
"""Most characters of a caller's value that an error repeats: a status travels in a header of some kilobytes."""


MANY = 8
"""Of so many names the nearest ones are told apart."""


class ServerError(Exception):
    """An error with a status and a stable reason. Expected."""

    status: ClassVar[Status]
    reason: ClassVar[str]

    def __init__(
        self,
        message: str,
        metadata: Mapping[str, object] | None = None,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """`metadata`: the changing parts of the message. `field`: the one of the request that is wrong."""
        super().__init__(message)
        self.message = message
        self.metadata = {key: _shorten(str(value)) for key, value in (metadata or {}).items()}
        self.field = field
        self.retry_after_s = retry_after_s


class InvalidRequest(ServerError):
    """The request can never be answered as it is. Expected."""

    status = "INVALID_ARGUMENT"


class EmptyContents(InvalidRequest):
    """There is nothing to work on."""

    reason = "EMPTY_CONTENTS"

    def __init__(self) -> None:
        super().__init__("contents has 0 texts; send at least 1", {"contents": 0, "min_contents": 1}, "contents")


class BlankContent(InvalidRequest):
    """A text without a visible character."""

    reason = "BLANK_CONTENT"

    def __init__(self, field: str, characters: int) -> None:
        message = f"{field} is blank: none of its {characters} characters is visible; leave it out"
        super().__init__(message, {"characters": characters}, field)


class TooManyContents(InvalidRequest):
    """More texts than a call may bring."""

    reason = "TOO_MANY_CONTENTS"

    def __init__(self, contents: int, max_contents: int) -> None:
        message = f"the request has {contents} contents; a call takes {max_contents}: send them in several calls"
        super().__init__(message, {"contents": contents, "max_contents": max_contents}, "contents")


class SourceTooLong(InvalidRequest):
    """A text that the model has no room for."""

    reason = "SOURCE_TOO_LONG"

    def __init__(self, field: str, unit: Literal["tokens", "characters"], count: int, most: int) -> None:
        message = f"{field} has {count} {unit}; the model takes {most}: split the text into sentences"
        super().__init__(message, {unit: count, f"max_{unit}": most}, field)


class NoTargets(InvalidRequest):
    """A text without a target to score."""

    reason = "NO_TARGETS"

    def __init__(self, field: str) -> None:
        super().__init__(f"{field} has 0 targets; send at least 1", {"targets": 0, "min_targets": 1}, field)


class TooManyTargets(InvalidRequest):
    """More targets than a call may bring."""

    reason = "TOO_MANY_TARGETS"

    def __init__(self, targets: int, max_targets: int) -> None:
        message = f"the request has {targets} targets; a call takes {max_targets}: send them in several calls"
        super().__init__(message, {"targets": targets, "max_targets": max_targets}, "contents")


class TargetTooLong(InvalidRequest):
    """A target that the model has no room for."""

    reason = "TARGET_TOO_LONG"

    def __init__(self, field: str, unit: Literal["tokens", "characters"], count: int, most: int) -> None:
        message = f"{field} has {count} {unit}; the model takes {most}: split the text and the target into sentences"
        super().__init__(message, {unit: count, f"max_{unit}": most}, field)


class LanguageNotSupported(InvalidRequest):
    """The model does not know the language."""

    reason = "LANGUAGE_NOT_SUPPORTED"

    def __init__(self, field: str, tag: str, supported: Sequence[str], who: str = "the model") -> None:
        """`who` has no more than these."""
        known = ", ".join(supported)
        message = f"{field} is {quoted(tag)}; {who} has {known}{_nearest(tag, supported)}"
        super().__init__(message, {"language_code": tag, "supported": known}, field)


class OptionOutOfRange(InvalidRequest):
    """An option with a value that it cannot have."""

    reason = "OPTION_OUT_OF_RANGE"

    def __init__(self, field: str, value: float, low: float, high: float, note: str = "", what: str = "") -> None:
        """`what`: the part of the option that the value is of."""
        message = f"{field}{what} is {value}; it must be from {low} to {high}{note}"
        super().__init__(message, {"value": value, "min": low, "max": high}, field)


class OptionsConflict(InvalidRequest):
    """Two options that cannot be asked for together."""

    reason = "OPTIONS_CONFLICT"

    def __init__(self, name: str, value: object, other: str, other_value: object, way_out: str) -> None:
        shown, other_shown = str(value).lower(), str(other_value).lower()
        message = f"{name} is {shown}, and {other} is {other_shown}: {way_out}"
        metadata = {"option": name, "value": shown, "other": other, "other_value": other_shown}
        super().__init__(message, metadata, f"decoding.{name}")


class PhraseNotWritable(InvalidRequest):
    """A text that no target of the model has as it is."""

    reason = "PHRASE_NOT_WRITABLE"

    def __init__(self, field: str, phrase: str, written: str) -> None:
        message = f"{field} is {quoted(phrase)}, which the model writes {quoted(written)}: send that, or its token ids"
        super().__init__(message, {"phrase": phrase, "written": written}, field)


class PoolingsConflict(InvalidRequest):
    """Poolings that cannot be asked for together."""

    reason = "POOLINGS_CONFLICT"

    def __init__(self, poolings: Sequence[str], fault: str) -> None:
        told = ", ".join(poolings)
        message = f"poolings are {told}: {fault}; leave it out, or send two requests"
        super().__init__(message, {"poolings": told}, "poolings")


class PromptNotSupported(InvalidRequest):
    """The model has no prompt of that name."""

    reason = "PROMPT_NOT_SUPPORTED"

    def __init__(self, name: str, supported: Sequence[str]) -> None:
        known = ", ".join(supported)
        message = f"prompt is {quoted(name)}; the model has {known or 'none: leave it out'}"
        super().__init__(message, {"prompt": name, "supported": known}, "prompt")


class TooManyLabels(InvalidRequest):
    """More labels than a call may have."""

    reason = "TOO_MANY_LABELS"

    def __init__(self, labels: int, max_labels: int) -> None:
        message = f"the request has {labels} labels; a call takes {max_labels}: leave some out"
        super().__init__(message, {"labels": labels, "max_labels": max_labels}, "labels")


class LabelTooLong(InvalidRequest):
    """A key or a value of a label that is too long for a line of the log."""

    reason = "LABEL_TOO_LONG"

    def __init__(self, key: str, part: Literal["key", "value"], characters: int, max_characters: int) -> None:
        message = f"the {part} of label {quoted(key)} has {characters} characters; it may have {max_characters}: cut it"
        super().__init__(message, {"characters": characters, "max_characters": max_characters}, "labels")


class InvalidMessage(InvalidRequest):
    """Bytes that are no message of the API."""

    reason = "INVALID_MESSAGE"

    def __init__(
        self, method: str, size_bytes: int, why: str = "its encoding is broken, or a string in it is not UTF-8"
    ) -> None:
        message = f"the {size_bytes} bytes of the request are no valid message of {method}: {_shorten(why, 4 * SHOWN)}"
        super().__init__(message, {"method": method, "size_bytes": size_bytes})


class NoCredentials(ServerError):
    """The caller does not say who it is. Expected."""

    status = "UNAUTHENTICATED"
    reason = "NO_CREDENTIALS"

    def __init__(self) -> None:
        super().__init__("the call does not say who makes it; send metadata authorization: Bearer TOKEN")


class InvalidToken(ServerError):
    """A token that lets nobody in. Expected."""

    status = "UNAUTHENTICATED"
    reason = "INVALID_TOKEN"

    def __init__(self, why: str) -> None:
        super().__init__(f"the token of the call is not valid: {why}")


class CallerNotListed(ServerError):
    """A certificate that is good, of somebody who is not let in. Expected."""

    status = "PERMISSION_DENIED"
    reason = "CALLER_NOT_LISTED"

    def __init__(self, names: Sequence[str]) -> None:
        told = ", ".join(names)
        message = (
            f"the certificate is of {quoted(told)}, whom this server does not list; have the name added to its callers"
        )
        super().__init__(message, {"names": told})


class ScopeMissing(ServerError):
    """The caller is known and may not do this. Expected."""

    status = "PERMISSION_DENIED"
    reason = "SCOPE_MISSING"

    def __init__(self, caller: str, scope: str, granted: Sequence[str]) -> None:
        has = ", ".join(granted)
        message = f"the call needs scope {scope}; {quoted(caller)} has {has or 'none'}: have it added"
        super().__init__(message, {"caller": caller, "scope": scope, "granted": has})


class QuotaExceeded(ServerError):
    """The caller asks for more than it may, however much there is. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "QUOTA_EXCEEDED"

    def __init__(self, caller: str, quota: str, asked: float, left: float, limit: float, retry_after_s: float) -> None:
        """quota: which of its quotas, as the file of callers calls it."""
        message = (
            f"{quoted(caller)} asks for {asked:g}, and {left:.3g} are left of its {quota}, which are {limit:g}: "
            f"retry in {retry_after_s * 1000:.0f} ms"
        )
        numbers = {"asked": f"{asked:g}", "left": f"{left:.3g}", "limit": f"{limit:g}"}
        super().__init__(message, {"caller": caller, "quota": quota, **numbers}, retry_after_s=retry_after_s)


class MessageTooLarge(ServerError):
    """A message over the size limit. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "MESSAGE_TOO_LARGE"

    def __init__(self, size_bytes: int, max_message_bytes: int) -> None:
        message = (
            f"the request has {size_bytes} bytes; the server takes {max_message_bytes}: send the texts in several calls"
        )
        super().__init__(message, {"size_bytes": size_bytes, "max_message_bytes": max_message_bytes})


class VectorsTooLarge(ServerError):
    """Vectors that no message has room for. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "VECTORS_TOO_LARGE"

    def __init__(self, size_bytes: int, max_message_bytes: int) -> None:
        message = (
            f"the vectors of the request would have {size_bytes} bytes; a message takes {max_message_bytes}: "
            "send fewer texts in a call, or ask for fewer dimensions or smaller numbers"
        )
        super().__init__(message, {"size_bytes": size_bytes, "max_message_bytes": max_message_bytes})


class OutOfMemory(ServerError):
    """A text for which the device has no memory just now. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "OUT_OF_MEMORY"

    def __init__(self, source_tokens: int) -> None:
        message = f"the device has no memory for a text of {source_tokens} tokens now; send it later, or split it"
        super().__init__(message, {"source_tokens": source_tokens})


class ModelNotFound(ServerError):
    """No model of that name. Expected."""

    status = "NOT_FOUND"
    reason = "MODEL_NOT_FOUND"

    def __init__(self, field: str, name: str, available: Sequence[str]) -> None:
        known = ", ".join(available)
        message = f"there is no model {quoted(name)}; the server has {known}{_nearest(name, available)}"
        super().__init__(message, {"model": name, "available": known}, field)


class ServiceNotFound(ServerError):
    """Health is asked of a service that is not here. Expected."""

    status = "NOT_FOUND"
    reason = "SERVICE_NOT_FOUND"

    def __init__(self, name: str, available: Sequence[str]) -> None:
        known = ", ".join(f'"{service}"' for service in available)
        message = f"there is no service {quoted(name)}; the server has {known}"
        super().__init__(message, {"service": name, "available": known})


class DoesNotTranslate(ServerError):
    """The model is an encoder alone. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "DOES_NOT_TRANSLATE"

    def __init__(self, model: str) -> None:
        message = f"model {quoted(model)} is an encoder alone and does not translate; ask another, or EncodingService"
        super().__init__(message, {"model": model}, "model")


class DoesNotScore(ServerError):
    """The model's package is older than scores. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "DOES_NOT_SCORE"

    def __init__(self, model: str) -> None:
        message = f"the package of model {quoted(model)} has no graphs that score targets: export its checkpoint again"
        super().__init__(message, {"model": model}, "model")


class OptionNotOffered(ServerError):
    """The package's graphs give less than an option takes. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "OPTION_NOT_OFFERED"

    def __init__(self, wish: str, way: str = "or export again") -> None:
        message = f"the model's package does not give {wish}, which an option takes: leave it out, {way}"
        super().__init__(message, {"wish": wish}, "decoding")


class ExtraMissing(ServerError):
    """The server was installed without what an option takes. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "EXTRA_MISSING"

    def __init__(self, option: str, package: str, extra: str) -> None:
        message = f"{option} takes {package}, which this server lacks: leave it out, or install the extra {extra!r}"
        super().__init__(message, {"option": option, "package": package, "extra": extra}, f"decoding.{option}")


class RequestStalled(ServerError):
    """The caller does not send what it began. Expected."""

    status = "ABORTED"
    reason = "REQUEST_STALLED"

    def __init__(self, timeout_s: float) -> None:
        message = (
            f"the request was not there within {timeout_s:g} s, or sooner while many others were coming in; "
            "send it at once, or in several calls"
        )
        super().__init__(message, {"request_timeout_s": timeout_s})


class StreamStalled(ServerError):
    """The caller does not read what it asked for. Expected."""

    status = "ABORTED"
    reason = "STREAM_STALLED"

    def __init__(self, timeout_s: float) -> None:
        message = f"nothing of the stream was read for {timeout_s:g} s; read its messages as they come"
        super().__init__(message, {"stream_stall_timeout_s": timeout_s})


class Unavailable(ServerError):
    """The same request may be answered later, or by another server. Expected."""

    status = "UNAVAILABLE"


class Overloaded(Unavailable):
    """The queue is full, or a caller's share of it."""

    reason = "OVERLOADED"

    def __init__(self, waiting: int, max_waiting: int, retry_after_s: float, share: int | None = None) -> None:
        """waiting: contents; with a share, those of the caller."""
        metadata = {"waiting": waiting, "max_waiting": max_waiting}
        if share is None:
            told = f"{waiting} contents would wait; the queue takes {max_waiting}"
        else:
            metadata["share"] = share
            told = f"{waiting} contents of this caller would wait; it may have {share} of {max_waiting} places just now"
        super().__init__(f"{told}: retry in {retry_after_s * 1000:.0f} ms", metadata, retry_after_s=retry_after_s)


class WouldBeLate(Unavailable):
    """The answer would come after the call's deadline: nothing is computed for nobody."""

    reason = "WOULD_BE_LATE"

    def __init__(self, seconds: float, left: float, retry_after_s: float | None = None) -> None:
        needed_ms, left_ms = (max(0, round(1000 * value)) for value in (seconds, left))
        retry = "" if retry_after_s is None else f" retry in {retry_after_s * 1000:.0f} ms, or"
        message = f"the answer would take {needed_ms} ms; {left_ms} ms are left:{retry} give the call a later deadline"
        super().__init__(message, {"needed_ms": needed_ms, "left_ms": left_ms}, retry_after_s=retry_after_s)


class Draining(Unavailable):
    """The server is shutting down."""

    reason = "DRAINING"

    def __init__(self) -> None:
        super().__init__("the server is shutting down; use another one")


class EngineStopped(Unavailable):
    """The engine failed before this request came."""

    reason = "ENGINE_STOPPED"

    def __init__(self) -> None:
        super().__init__("the server's engine has failed and takes no more requests; use another server")


class EngineFailed(ServerError):
    """The engine failed while it had this request.

    Not UNAVAILABLE: the request may be the cause, and clients would take it to the next server.
    """

    status = "INTERNAL"
    reason = "ENGINE_FAILED"

    def __init__(self) -> None:
        super().__init__("the server's engine failed while it worked on this request")


class Quarantined(ServerError):
    """The engine has failed twice with this text, the second time with nothing else on board.

    Not UNAVAILABLE: clients would take it to the next server.
    """

    status = "INTERNAL"
    reason = "QUARANTINED"

    def __init__(self) -> None:
        super().__init__(
            "the server's engine has failed twice with this text, and takes it no more; another text may do"
        )


class NotFinite(ServerError):
    """The model computes no numbers for this text. The others that share its steps are answered."""

    status = "INTERNAL"
    reason = "NOT_FINITE"

    def __init__(self) -> None:
        super().__init__("the model's numbers for this text are not finite; another text may do")


class InternalError(ServerError):
    """Unexpected: a defect of the server. Its log has the traceback."""

    status = "INTERNAL"
    reason = "INTERNAL"

    def __init__(self) -> None:
        super().__init__("the server has a defect; its log says more")


def _nearest(value: str, known: Sequence[str]) -> str:
    """What was meant, maybe. Of few, the list says enough."""
    close = get_close_matches(value[:SHOWN], known, n=3) if len(known) >= MANY else []
    return f"; the nearest are {', '.join(close)}" if close else ""


def quoted(value: str) -> str:
    """A caller's value, in quotes and not too long."""
    return f'"{_shorten(value)}"'


def _shorten(text: str, most: int = SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
