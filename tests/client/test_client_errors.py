"""What the Python clients raise, against a real gRPC server. What holds for one holds for both."""

import pickle
from collections import deque

import grpc
import pytest
from google.rpc.error_details_pb2 import DebugInfo

from dragoman.errors import (
    Aborted,
    Cancelled,
    DeadlineExceeded,
    DragomanError,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unimplemented,
)
from dragoman.wire.messages import MAX_CONTENTS
from tests.client.clients import Call, call_sync
from tests.client.fake_server import Failure, FakeServer, too_long


def test_an_error_carries_its_details(server: FakeServer, call: Call) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call(server.target, "translate", ["fine", "too long"])
    error = caught.value
    message = "contents[1] has 1300 tokens; the model takes 512: split it into sentences"
    assert (error.message, error.code, error.reason) == (message, grpc.StatusCode.INVALID_ARGUMENT, "SOURCE_TOO_LONG")
    assert error.metadata == {"tokens": "1300", "max_tokens": "512"}
    assert error.violations == (FieldViolation("contents[1]", message),)
    assert error.retry_delay_s is None
    assert str(error) == f"{message} (SOURCE_TOO_LONG)"


@pytest.mark.parametrize("method", ["translate", "encode"])
def test_an_error_counts_texts_through_the_whole_list(server: FakeServer, call: Call, method: str) -> None:
    texts = ["fine"] * (MAX_CONTENTS + 5)
    texts[MAX_CONTENTS + 2] = "too long"
    with pytest.raises(InvalidArgument, match=rf"^contents\[{MAX_CONTENTS + 2}\] has 1300 tokens") as caught:
        call(server.target, method, texts)
    assert caught.value.violations[0].field == f"contents[{MAX_CONTENTS + 2}]"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument),
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.FAILED_PRECONDITION, FailedPrecondition),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhausted),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.CANCELLED, Cancelled),
        (grpc.StatusCode.ABORTED, Aborted),
        (grpc.StatusCode.UNIMPLEMENTED, Unimplemented),
        (grpc.StatusCode.INTERNAL, Internal),
        (grpc.StatusCode.UNAUTHENTICATED, Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDenied),
        (grpc.StatusCode.OUT_OF_RANGE, DragomanError),
    ],
)
def test_every_status_has_its_error(server: FakeServer, call: Call, code: grpc.StatusCode, kind: type) -> None:
    server.failures = deque([Failure(code, "because", raw_details=b"")])  # a bare CANCELLED would be made again
    with pytest.raises(DragomanError) as caught:
        call(server.target, "models")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.message, caught.value.reason) == (code, "because", "")
    assert str(caught.value) == f"because ({code.name})"


@pytest.mark.parametrize("failure", [Failure(grpc.StatusCode.INTERNAL, "bad", raw_details=b"\xff\xff nonsense")])
def test_details_that_are_nonsense_are_left_out(server: FakeServer, call: Call, failure: Failure) -> None:
    server.failures = deque([failure])
    with pytest.raises(Internal, match="bad") as caught:
        call(server.target, "models")
    assert (caught.value.reason, caught.value.metadata, caught.value.violations) == ("", {}, ())


def test_details_of_other_kinds_are_passed_over(server: FakeServer) -> None:
    details = (DebugInfo(detail="stack"), *too_long(0).details)
    server.failures = deque([Failure(grpc.StatusCode.INVALID_ARGUMENT, "bad", details)])
    with pytest.raises(InvalidArgument) as caught:
        call_sync(server.target, "models")
    assert caught.value.reason == "SOURCE_TOO_LONG"


def test_errors_survive_pickling(server: FakeServer) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call_sync(server.target, "translate", "too long")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is InvalidArgument
    assert vars(copy) == vars(caught.value)
