"""What is told of a run, and of errors that end it."""

from types import SimpleNamespace

import grpc
import pytest

from dragoman import errors
from dragoman.command import progress
from dragoman.errors import FieldViolation, InvalidArgument, is_of_text


def test_the_time_left_is_that_of_what_is_done_since_the_first_share(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of it was done before; the load of a model is no part of it."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    with progress.Progress(wanted=True, unit="rows") as told:
        for second, share in ((10, 0.5), (20, 0.6), (30, 0.7)):
            clock.now = second
            told.advance(100, share)
    assert capsys.readouterr().err.splitlines() == [
        "100 rows, 10.0 rows/s, 50.0% of all",
        "200 rows, 10.0 rows/s, 60.0% of all, 0:00:40 left",
        "300 rows, 10.0 rows/s, 70.0% of all, 0:00:30 left",
        "300 rows, 10.0 rows/s, 70.0% of all, 0:00:30 left",
    ]


@pytest.mark.parametrize(
    ("kind", "field", "of_text"),
    [
        ("InvalidArgument", "contents[3]", True),
        ("InvalidArgument", "decoding.num_beams", False),
        ("InvalidArgument", None, True),
        ("Internal", None, True),
        ("ResourceExhausted", None, True),
        ("FailedPrecondition", None, False),
        ("Unavailable", None, False),
        ("Unreachable", None, False),
        ("NotFound", "model", False),
    ],
)
def test_errors_of_a_text_are_told_from_those_of_all(kind: str, field: str | None, of_text: bool) -> None:
    made: type[InvalidArgument] = getattr(errors, kind)
    violations = () if field is None else (FieldViolation(field, "is wrong"),)
    assert is_of_text(made("no", grpc.StatusCode.UNKNOWN, "", {}, violations)) is of_text
