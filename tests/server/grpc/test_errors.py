"""server.errors and server.grpc.status: every expected error, and how it looks on the wire."""

import re
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from server import errors
from server.errors import (
    AttentionTooLarge,
    BlankContent,
    CallerNotListed,
    CandidateRefused,
    DocumentBroken,
    DocumentTooLarge,
    DoesNotClassify,
    DoesNotScore,
    DoesNotTranslate,
    Draining,
    EmptyContents,
    EngineFailed,
    EngineStopped,
    ExtraMissing,
    HtmlTooLong,
    InternalError,
    InvalidMessage,
    InvalidToken,
    LabelsTooLarge,
    LabelTooLong,
    LanguageNotSupported,
    MessageTooLarge,
    ModelNotFound,
    NoCredentials,
    NoTargets,
    NotFinite,
    OptionNotOffered,
    OptionOutOfRange,
    OptionsConflict,
    OutOfMemory,
    Overloaded,
    PhraseNotWritable,
    PoolingNotSupported,
    PoolingsConflict,
    PromptNotSupported,
    Quarantined,
    QuotaExceeded,
    ReloadUnderWay,
    RequestStalled,
    RequestsTooLarge,
    ScopeMissing,
    ServerError,
    ServiceNotFound,
    SourceTooLong,
    StreamPaused,
    StreamStalled,
    TargetTooLong,
    TooManyCalls,
    TooManyContents,
    TooManyLabels,
    TooManyTargets,
    TooManyWatchers,
    VectorsTooLarge,
    WouldBeLate,
)
from server.errors.request import AGAIN_S
from server.errors.retry import JITTER
from server.grpc.status import DETAILS_KEY, PUSHBACK_KEY, error_metadata

EXAMPLES: list[ServerError] = [
    EmptyContents(),
    BlankContent("contents[3]", 2),
    TooManyContents(300, 256),
    SourceTooLong("contents[0]", "tokens", 1300, 512),
    HtmlTooLong("contents[0]", 300_000, 262_144),
    DocumentBroken("text file (txt)", "byte 1 (0xff) is not UTF-8; convert it to UTF-8 first"),
    DocumentTooLarge("texts", 20_000, 10_000),
    NoTargets("contents[3].targets"),
    TooManyTargets(300, 256),
    TargetTooLong("contents[0].targets[1]", "tokens", 1300, 512),
    DoesNotClassify("en-pt"),
    DoesNotScore("en-pt"),
    LanguageNotSupported("target_language_code", "de", ["pt"]),
    OptionOutOfRange("decoding.num_beams", 1_000_000, 1, 16),
    OptionsConflict("do_sample", True, "num_beams", 4, "send num_beams 1"),
    PhraseNotWritable("decoding.must_include[0]", "漢", "⁇"),
    PoolingNotSupported("poolings[1]", "attention", ["none", "cls"]),
    PoolingsConflict(["mean", "mean"], "one of them occurs twice"),
    PromptNotSupported("query", ["passage"]),
    TooManyLabels(20, 16),
    LabelTooLong("tenant", "value", 300, 128),
    InvalidMessage("dragoman.v1.TranslationService/Translate", 4),
    NoCredentials(),
    InvalidToken("nobody has it"),
    CallerNotListed(["a.example", "b.example"]),
    ScopeMissing("reports", "encode", ["models", "translate"]),
    QuotaExceeded("reports", "texts_per_s", 40, 12.5, 100, 0.275),
    MessageTooLarge(5_000_000, 4_194_304),
    ModelNotFound("model", "en-de", ["en-pt"]),
    CandidateRefused("en-pt", "2 of 6 texts are different; 0.8 of them must be equal"),
    ReloadUnderWay("en-pt"),
    ServiceNotFound("dragoman.v1.Made-up", ["", "dragoman.v1.ModelService"]),
    RequestStalled(10),
    StreamPaused(300, 32),
    StreamStalled(30),
    OutOfMemory(400),
    VectorsTooLarge(5_000_000, 4_194_304),
    LabelsTooLarge(5_000_000, 4_194_304),
    AttentionTooLarge(5_000_000, 4_194_304),
    DoesNotTranslate("minilm"),
    OptionNotOffered("the scores of all tokens"),
    ExtraMissing("mbr_samples", "sacrebleu", "mbr"),
    Overloaded(1030, 1024, 0.25),
    TooManyCalls(830, 48, 0.25),
    RequestsTooLarge(3000, 4000, 5000, 1.0),
    TooManyWatchers(16, 16, "this connection"),
    WouldBeLate(1.2, 0.8, 0.4),
    Draining(),
    EngineStopped(),
    EngineFailed(),
    Quarantined(),
    NotFinite(),
    InternalError(),
]

RETRIED = [
    "QUOTA_EXCEEDED",
    "REQUEST_STALLED",
    "OUT_OF_MEMORY",
    "OVERLOADED",
    "TOO_MANY_CALLS",
    "REQUESTS_TOO_LARGE",
    "WOULD_BE_LATE",
]


def classes() -> list[type[ServerError]]:
    """Every error class of the module."""
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ServerError)]
    return [cls for cls in found if cls is not ServerError]


def details(error: ServerError) -> Status:
    return Status.FromString(dict(error_metadata(error))[DETAILS_KEY])  # type: ignore[arg-type]


def test_every_class_is_in_the_tree_of_the_docstring_under_its_base_with_its_status_and_reason() -> None:
    assert errors.__doc__ is not None
    path: dict[int, str] = {}
    seen = set()
    status_of: dict[str, str] = {}
    for line in errors.__doc__.splitlines():
        match = re.match(r"^([ │├└─]+)([A-Z]\w+) (.*)$", line)
        if match is None or not hasattr(errors, match[2]):
            continue
        indent, name, rest = len(match[1]), match[2], match[3]
        cls = getattr(errors, name)
        path[indent] = name
        parents = [path[level] for level in sorted(path) if level < indent]
        if parents and name != "InternalError":
            assert issubclass(cls, getattr(errors, parents[-1])), line
        words = re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", rest)
        status_of[name] = next((word for word in words if hasattr(grpc.StatusCode, word)), "") or next(
            (status_of[parent] for parent in reversed(parents) if status_of.get(parent)), ""
        )
        if hasattr(cls, "reason"):
            assert cls.reason in words, line
            assert cls.status == status_of[name], line
        seen.add(name)
    assert seen == {cls.__name__ for cls in classes()} | {"ServerError"}


def test_examples_cover_every_reason_and_reasons_are_stable_names() -> None:
    reasons = [cls.reason for cls in classes() if hasattr(cls, "reason")]
    assert sorted(reasons) == sorted(error.reason for error in EXAMPLES)
    assert len(set(reasons)) == len(reasons)
    assert all(re.fullmatch(r"[A-Z]+(_[A-Z]+)*", reason) for reason in reasons)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.reason)
def test_every_error_has_an_error_info_and_says_in_metadata_what_the_message_says(error: ServerError) -> None:
    status = details(error)
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (error.reason, "dragoman")
    assert status.code == grpc.StatusCode[error.status].value[0]
    assert status.message == error.message
    numbers = [value for value in info.metadata.values() if value.replace(".", "").isdigit()]
    assert all(re.search(rf"(?<!\d){re.escape(number)}(?!\d)", error.message) for number in numbers)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.reason)
def test_a_field_becomes_a_violation(error: ServerError) -> None:
    violations = BadRequest()
    unpacked = [detail.Unpack(violations) for detail in details(error).details]
    fields = [(violation.field, violation.description) for violation in violations.field_violations]
    assert any(unpacked) == (error.field is not None)
    assert fields == ([] if error.field is None else [(error.field, error.message)])


def test_a_limit_names_both_numbers() -> None:
    assert SourceTooLong("contents[0]", "tokens", 1300, 512).metadata == {"tokens": "1300", "max_tokens": "512"}
    assert "1300 tokens; the model takes 512" in SourceTooLong("contents[0]", "tokens", 1300, 512).message


def test_an_overload_carries_its_delay_twice() -> None:
    error = Overloaded(1030, 1024, 0.25)
    retry = RetryInfo()
    assert any(detail.Unpack(retry) for detail in details(error).details)
    assert retry.retry_delay.ToMilliseconds() == 250
    assert dict(error_metadata(error))[PUSHBACK_KEY] == "250"


def test_only_too_much_at_a_time_asks_to_retry() -> None:
    assert [error.reason for error in EXAMPLES if PUSHBACK_KEY in dict(error_metadata(error))] == RETRIED


def test_a_huge_value_of_the_caller_is_cut_so_that_the_status_fits_into_headers() -> None:
    error = ModelNotFound("model", "x" * 1_000_000, ["en-pt"])
    assert sum(len(key) + len(value) for key, value in error_metadata(error)) < 2000
    assert error.metadata["model"] == "x" * 64 + "..."


def test_every_reason_is_documented_with_its_status_and_metadata() -> None:
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    for error in EXAMPLES:
        [row] = [line for line in text.splitlines() if line.startswith(f"| `{error.reason}` |")]
        assert f"| `{error.status}` |" in row
        assert all(f"`{key}`" in row for key in error.metadata), row


def test_who_was_too_slow_comes_again_at_a_time_of_its_own() -> None:
    times = [RequestStalled(10).retry_after_s for _ in range(10)]
    assert len(set(times)) == 10
    assert all(one is not None and AGAIN_S <= one <= AGAIN_S * (1 + JITTER) for one in times)
