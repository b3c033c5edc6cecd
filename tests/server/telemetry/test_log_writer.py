"""server.telemetry.log_writer: lines come out in order, and nobody waits for a pipe that is not read."""

import logging
import os
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from server.telemetry.log_writer import LogWriter
from server.telemetry.metrics.process import ProcessMetrics
from tests.server_process import WAIT_S, eventually

PIPE_LINES = 200
"""Of a kilobyte each: more than a pipe has room for."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def write(handler: logging.Handler, message: str) -> None:
    handler.handle(logging.LogRecord("x", logging.INFO, "x.py", 1, message, None, None))


def read_line(stream: Iterator[str]) -> str:
    return next(stream).rstrip("\n")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be written is, before `flush` comes back."""
    monkeypatch.setattr("server.telemetry.log_writer.FLUSH_S", WAIT_S)


@pytest.mark.usefixtures("patient")
def test_lines_come_out_in_order(pipe: tuple[int, int]) -> None:
    handler = LogWriter(pipe[1])
    for number in range(100):
        write(handler, f"line {number}")
    handler.flush()
    assert os.read(pipe[0], 10_000).decode().splitlines() == [f"line {number}" for number in range(100)]
    assert handler.dropped == 0


def test_a_pipe_that_is_not_read_holds_up_nobody_and_lines_on_top_are_dropped_and_counted(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = LogWriter(pipe[1], max_lines=50)
    for number in range(PIPE_LINES):  # would never end if one of them waited
        write(handler, f"{number} " + "x" * 1000)
    handler.flush()
    dropped = handler.dropped
    assert 0 < dropped <= PIPE_LINES - 50
    monkeypatch.setattr(logging.root, "handlers", [handler])
    ProcessMetrics(registry := CollectorRegistry())
    assert registry.get_sample_value("dragoman_log_lines_dropped_total") == dropped
    numbers, gaps = list[int](), list[int]()
    with open(os.dup(pipe[0]), encoding="utf-8") as stream:
        while len(numbers) < PIPE_LINES - dropped or sum(gaps) < dropped:
            first, _, rest = read_line(stream).partition(" ")
            is_gap = rest.strip() == "lines were dropped: standard error was not read"
            (gaps if is_gap else numbers).append(int(first))
    assert numbers == sorted(numbers)
    assert (len(numbers), sum(gaps)) == (PIPE_LINES - dropped, dropped)


def test_long_lines_that_wait_have_a_room_together_and_one_alone_is_never_too_long(pipe: tuple[int, int]) -> None:
    handler = LogWriter(pipe[1], max_bytes=100_000)
    write(handler, "a" * 200_000)
    eventually(lambda: not handler._lines)  # it fills the pipe
    for line in ("b" * 90_000, "c" * 20_000, "d" * 9_000):
        write(handler, line)
    assert handler.dropped == 1
    with open(os.dup(pipe[0]), encoding="utf-8") as stream:  # all of it: what is left would go to another test's pipe
        while not read_line(stream).startswith("d"):
            pass
    handler.flush()
    handler = LogWriter(pipe[1], max_bytes=10)
    write(handler, "x" * 100)
    handler.flush()
    assert handler.dropped == 0


@pytest.mark.usefixtures("patient")
def test_a_record_that_has_no_line_is_told_all_the_same(pipe: tuple[int, int]) -> None:
    handler = LogWriter(pipe[1])
    handler.handle(logging.LogRecord("x", logging.INFO, "x.py", 1, "%d", ("three",), None))
    handler.flush()
    assert os.read(pipe[0], 1000).startswith(b"INFO x: '%d' has no line: TypeError(")


@pytest.mark.usefixtures("patient")
def test_a_pipe_that_is_closed_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    handler = LogWriter(writer)
    for _ in range(3):
        write(handler, "line")
    handler.flush()
    assert handler.dropped == 3
    os.close(writer)
