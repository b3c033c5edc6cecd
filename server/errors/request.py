"""The request can never be answered as it is, or does not come in."""

from collections.abc import Sequence
from typing import Literal

from models.languages import UNDETERMINED
from server.errors.error import SHOWN, ServerError, nearest, quoted, shorten
from server.errors.retry import apart

AGAIN_S = 0.1
"""By then those who came at the same time are in."""


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


class HtmlTooLong(InvalidRequest):
    """A text in HTML over the limit."""

    reason = "HTML_TOO_LONG"

    def __init__(self, field: str, characters: int, max_characters: int) -> None:
        message = f"{field} has {characters} characters of HTML; a text may have {max_characters}: send its parts"
        super().__init__(message, {"characters": characters, "max_characters": max_characters}, field)


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
        message = f"{field} is {quoted(tag)}; {who} has {known}{nearest(tag, supported)}"
        if UNDETERMINED in supported:
            option = f"--{field.removesuffix('_code').replace('_', '-')}"
            message += f"; und is unknown: leave both languages out, or export the checkpoint again with {option}"
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

    def __init__(
        self, name: str, value: object, other: str, other_value: object, way_out: str, within: str = "decoding."
    ) -> None:
        """within: where the option is in the request."""
        shown, other_shown = str(value).lower(), str(other_value).lower()
        message = f"{name} is {shown}, and {other} is {other_shown}: {way_out}"
        metadata = {"option": name, "value": shown, "other": other, "other_value": other_shown}
        super().__init__(message, metadata, f"{within}{name}")


class PhraseNotWritable(InvalidRequest):
    """A text that no target of the model has as it is."""

    reason = "PHRASE_NOT_WRITABLE"

    def __init__(self, field: str, phrase: str, written: str) -> None:
        message = f"{field} is {quoted(phrase)}, which the model writes {quoted(written)}: send that, or its token ids"
        super().__init__(message, {"phrase": phrase, "written": written}, field)


class PoolingNotSupported(InvalidRequest):
    """A pooling that the model has no weights for."""

    reason = "POOLING_NOT_SUPPORTED"

    def __init__(self, field: str, pooling: str, supported: Sequence[str]) -> None:
        known = ", ".join(supported)
        message = f"{field} is {pooling}, for which the model's package has no weights; it has {known}"
        super().__init__(message, {"pooling": pooling, "supported": known}, field)


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
        message = f"the {size_bytes} bytes of the request are no valid message of {method}: {shorten(why, 4 * SHOWN)}"
        super().__init__(message, {"method": method, "size_bytes": size_bytes})


class MessageTooLarge(ServerError):
    """A message over the size limit. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "MESSAGE_TOO_LARGE"

    def __init__(self, size_bytes: int, max_message_bytes: int) -> None:
        way = "send the texts in several calls, a document in parts, or have --max-message-bytes raised"
        message = f"the request has {size_bytes} bytes; the server takes {max_message_bytes}: {way}"
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


class LabelsTooLarge(ServerError):
    """Labels that perhaps no message has room for. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "LABELS_TOO_LARGE"

    def __init__(self, size_bytes: int, max_message_bytes: int) -> None:
        message = (
            f"the labels of the request may have {size_bytes} bytes; a message takes {max_message_bytes}: "
            "send fewer texts in a call, or ask for fewer labels"
        )
        super().__init__(message, {"size_bytes": size_bytes, "max_message_bytes": max_message_bytes})


class AttentionTooLarge(ServerError):
    """Attention that perhaps no message has room for. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "ATTENTION_TOO_LARGE"

    def __init__(self, size_bytes: int, max_message_bytes: int) -> None:
        message = (
            f"the attention of the request may have {size_bytes} bytes; a message takes {max_message_bytes}: "
            "send fewer or shorter texts in a call, a smaller max_new_tokens or max_new_tokens_ratio, or ask for fewer "
            "hypotheses"
        )
        numbers = {"size_bytes": size_bytes, "max_message_bytes": max_message_bytes}
        super().__init__(message, numbers, "decoding.with_attention")


class RequestStalled(ServerError):
    """The caller does not send what it began, or is one of too many who do. Expected. Nothing was done for it."""

    status = "ABORTED"
    reason = "REQUEST_STALLED"

    def __init__(self, timeout_s: float) -> None:
        retry_after_s = apart(AGAIN_S)
        message = (
            f"the request was not there within {timeout_s:g} s, or sooner while many others were coming in; "
            f"send it at once, in {1000 * retry_after_s:.0f} ms, or in several calls"
        )
        super().__init__(message, {"request_timeout_s": timeout_s}, retry_after_s=retry_after_s)


class StreamPaused(ServerError):
    """The caller keeps a stream of requests open and sends none, as one of too many who do. Expected.

    What came before was answered.
    """

    status = "ABORTED"
    reason = "STREAM_PAUSED"

    def __init__(self, timeout_s: float, most: int) -> None:
        message = (
            f"the next request of the stream was not there within {timeout_s:g} s, or sooner while more than {most} "
            "streams waited for theirs; end the stream when there is none, and open one when there is"
        )
        super().__init__(message, {"connection_idle_s": timeout_s, "max_paused": most})


class StreamStalled(ServerError):
    """The caller does not read what it asked for. Expected."""

    status = "ABORTED"
    reason = "STREAM_STALLED"

    def __init__(self, timeout_s: float) -> None:
        message = f"nothing of the stream was read for {timeout_s:g} s; read its messages as they come"
        super().__init__(message, {"stream_stall_timeout_s": timeout_s})
