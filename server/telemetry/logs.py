"""What the server writes to standard error: lines for people or for programs, and one line a call where asked for."""

import json
import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from server.config import Settings
from server.telemetry.calls import REUSES, Call
from server.telemetry.log_writer import LogWriter

STANDARD_ERROR = 2
FIELDS = "fields"
"""The attribute of a log record that has facts by name, beside its message."""

log = logging.getLogger(__name__)
calls_log = logging.getLogger("server.telemetry.calls")


def configure(settings: Settings) -> None:
    """Writes the log as the settings say, from now on."""
    handler = LogWriter(STANDARD_ERROR)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    # Python itself would write to standard error, and wait for whoever reads it.
    logging.captureWarnings(True)
    threading.excepthook, sys.unraisablehook = _thread_ended, _not_raised
    if settings.log_text:
        log.warning("log_text is set: the log will have the texts of all calls, and their translations")


def _thread_ended(told: threading.ExceptHookArgs) -> None:
    if not issubclass(told.exc_type, SystemExit):
        name = getattr(told.thread, "name", "")
        log.critical("thread %s has ended", name, exc_info=told.exc_value or told.exc_type())


def _not_raised(told: "sys.UnraisableHookArgs") -> None:
    where = told.err_msg or "nobody could be told of an exception in"
    log.error("%s: %r", where, told.object, exc_info=told.exc_value or told.exc_type())


def flush() -> None:
    """Waits until what was logged is written, but not for long."""
    for handler in logging.root.handlers:
        handler.flush()


def dropped_lines() -> int:
    """Lines that nobody will read: standard error was not read fast enough, or is closed."""
    return sum(handler.dropped for handler in logging.root.handlers if isinstance(handler, LogWriter))


class TextFormatter(logging.Formatter):
    """One line, facts at its end as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a traceback."""
        return " ".join([super().formatMessage(record), *(f"{k}={_plain(v)}" for k, v in _fields(record).items())])


class JsonFormatter(logging.Formatter):
    """One JSON object on a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class CallLog:
    """One line for every call of the API."""

    def __init__(self, settings: Settings) -> None:
        self._enabled = settings.log_requests
        self._with_labels = settings.log_labels
        self._with_text = settings.log_text

    def write(self, call: Call, seconds: float) -> None:
        """A call is answered, after so long."""
        if self._enabled:
            facts = call_facts(call, seconds) | (call_texts(call) if self._with_text else {})
            if self._with_labels and call.labels:
                facts["labels"] = dict(call.labels)
            calls_log.info("call answered", extra={FIELDS: facts})


def call_facts(call: Call, seconds: float) -> dict[str, Any]:
    """What is told of a call. Nothing of what it said."""
    facts: dict[str, Any] = {
        "request_id": call.request_id,
        "trace_id": call.trace_id,
        "caller": call.caller,
        "method": call.method,
        "code": call.code,
        "reason": call.reason,
        "model": call.model,
        "duration_ms": round(seconds * 1000, 3),
    }
    if call.contents:
        facts |= {"contents": len(call.contents)}
        facts |= {"source_tokens": call.source_tokens, "target_tokens": call.target_tokens}
        facts |= {f"{phase}_ms": round(value * 1000, 3) for phase, value in call.phase_seconds().items()}
        facts |= {reuse: count for reuse in REUSES if (count := call.reused(reuse))}
        facts |= {"steps": call.steps, "mean_batch_rows": round(call.mean_batch_rows, 2)}
    return {name: fact for name, fact in facts.items() if fact != ""}


def call_texts(call: Call) -> dict[str, list[str]]:
    """What a call said and was told."""
    return {
        "texts": [content.text for content in call.contents],
        "answers": [content.answer for content in call.contents if content.answer is not None],
    }


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, FIELDS, {})
    return fields


def _plain(fact: object) -> str:
    """A fact that cannot break its line: quoted where it is more than a word."""
    return fact if isinstance(fact, str) and fact.isprintable() and " " not in fact else json.dumps(fact)
