"""server.telemetry.logs: the two formats, and what they make of texts from outside."""

import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from engine.request import Timings
from server.config import Settings
from server.telemetry.calls import AnsweredContent, Call
from server.telemetry.logs import FIELDS, CallLog, JsonFormatter, TextFormatter, configure, flush
from tests.serving import serving

NASTY = 'a "b"\n2026-01-01 ERROR server: forged\x1b[31m\u2028'
TIMINGS = Timings(0.001, 0.002, 0.03, 5, 2.0, 0.0001, 0.0002)


def record(message: str, fields: dict[str, Any] | None = None, **rest: Any) -> logging.LogRecord:
    made = logging.LogRecord("server.x", logging.WARNING, "x.py", 1, message, None, None, **rest)
    if fields is not None:
        setattr(made, FIELDS, fields)
    return made


def test_json_is_one_object_on_one_line() -> None:
    line = JsonFormatter().format(record(NASTY, {"request_id": "r", "steps": 5}))
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["message"]) == ("warning", "server.x", NASTY)
    assert (entry["request_id"], entry["steps"]) == ("r", 5)
    assert entry["time"].endswith("+00:00")


def test_json_has_the_traceback() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: broken")


def test_text_has_facts_at_the_end_and_none_can_break_the_line() -> None:
    line = TextFormatter().format(record("call answered", {"code": "OK", "steps": 5, "texts": [NASTY], "name": NASTY}))
    assert line.splitlines() == [line]
    assert " WARNING server.x: call answered code=OK steps=5 texts=" in line
    assert "\x1b" not in line


@contextmanager
def configured(settings: Settings) -> Iterator[None]:
    """The log of a server. All that it changes is as before afterwards."""
    root = logging.getLogger()
    handlers, level, hooks = root.handlers[:], root.level, (threading.excepthook, sys.unraisablehook)
    root.handlers.clear()
    try:
        configure(settings)
        yield
        flush()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = hooks


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_server_writes_what_it_was_told_to(log_format: str, capfd: pytest.CaptureFixture[str]) -> None:
    settings = Settings(workers=1, log_format=log_format, log_requests=True, log_text=True)  # type: ignore[arg-type]
    with configured(settings):
        call = Call("m", "r", model="en-pt")
        call.contents.append(AnsweredContent("A cat.", "Um gato.", TIMINGS, 0.0, 0.0, 0.0, 4, 3))
        CallLog(settings).write(call, 0.05)
    warning, line = capfd.readouterr().err.splitlines()
    assert "log_text is set" in warning
    for fact in ("Um gato.", "request_id", "decode_ms", "30.0", "mean_batch_rows"):
        assert fact in line
    if log_format == "json":
        assert json.loads(line)["answers"] == ["Um gato."]


def test_what_python_would_write_by_itself_is_a_line_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    """It would wait for whoever reads standard error."""

    class Last:
        def __del__(self) -> None:
            raise ValueError("nobody is told")

    def fail() -> None:
        raise ValueError("broken")

    with configured(Settings(workers=1, log_format="json")):
        warnings.showwarning("old", UserWarning, "x.py", 1)
        thread = threading.Thread(target=fail, name="t")
        thread.start()
        thread.join()
        Last()
        logging.getLogger("x").info("%d", "no number")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["logger"] for line in lines] == ["py.warnings", "server.telemetry.logs", "server.telemetry.logs"]
    assert [line["message"] for line in lines[1:2]] == ["thread t has ended"]
    assert ["nobody is told" in lines[2]["exception"], "broken" in lines[1]["exception"]] == [True, True]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"log_text": True}, "log_text needs log_requests"),
        ({"log_labels": True}, "log_labels needs log_requests or otlp_endpoint"),
        ({"log_requests": True, "log_level": "warning"}, "log_requests writes lines of level info, and log_level is"),
    ],
)
def test_settings_that_would_log_nothing_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Settings(workers=1, **values)


@pytest.mark.parametrize("log_labels", [False, True])
async def test_the_labels_of_a_call_are_logged_where_that_is_asked_for(
    log_labels: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    labels = {"tenant": NASTY}
    call = TranslateRequest(contents=["A cat."], target_language_code="pt", labels=labels)
    stream = StreamTranslateRequest(content="A cat.", target_language_code="pt", labels=labels)
    async with serving(log_requests=True, log_labels=log_labels) as server:
        await server.translations.Translate(call)
        async for _ in server.translations.StreamTranslate(stream):
            pass
        await server.encodings.Encode(EncodeRequest(contents=["A cat."]))
    lines = [getattr(line, FIELDS) for line in caplog.records if line.message == "call answered"]
    assert [line.get("labels") for line in lines] == ([labels, labels, None] if log_labels else [None] * 3)
