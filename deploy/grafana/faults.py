"""Faults and callers: what failed and was mended inside, who asks for how much, and who is kept out."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from deploy.grafana.frame import build
from deploy.grafana.panels import RED, YELLOW, lines, number, stacked
from deploy.grafana.queries import INSTANCE, MODEL, by, or_none, rate, ratio, some, total

REFUSALS = "dragoman_refusals_total"
STRANGERS = "NO_CREDENTIALS|INVALID_TOKEN|CALLER_NOT_LISTED|SCOPE_MISSING"
"""The reasons of calls that identity keeps out. The alert DragomanStrangers has the first three."""
GUARDS = "REQUEST_STALLED|STREAM_PAUSED|STREAM_STALLED|MESSAGE_TOO_LARGE|INVALID_MESSAGE"
"""The reasons of calls that do not come or are not read as they should be."""
ONCE = ((1, RED),)


def dashboard() -> Dashboard:
    """All of it."""
    return build(
        "faults",
        "Faults and callers",
        "What failed and was mended inside, who asks for how much, and who is kept out.",
        {"Now": _now(), "Engines": _engines(), "Callers": _callers(), "Who is kept out": _kept_out()},
    )


def _now() -> Sequence[Builder[Panel]]:
    return [
        number(
            "Canary",
            "Models whose probes have not the tokens or scores that export recorded.",
            "short",
            f"sum(dragoman_canary_differs{{{MODEL}}})",
            ONCE,
        ).span(6),
        number(
            "Files not taken up",
            "Callers' lists, certificates or keys that changed and cannot be used: those from before still are.",
            "short",
            f"sum(dragoman_reload_failed{{{INSTANCE}}})",
            ONCE,
        ).span(6),
        number(
            "Memory",
            "Resident memory as a share of what the server may come to need, of the fullest.",
            "percentunit",
            f"max(process_resident_memory_bytes{{{INSTANCE}}} / on (job, instance) "
            f'dragoman_memory_bytes{{{INSTANCE}, kind="budget"}})',
            ((0.9, YELLOW), (1, RED)),
            empty="servers on a GPU have no budget",
        ).span(6),
        number(
            "Log lines dropped",
            "In a second: what reads standard error does not keep up.",
            "short",
            total("dragoman_log_lines_dropped_total", INSTANCE),
            ((0.001, YELLOW),),
        ).span(6),
    ]


def _engines() -> Sequence[Builder[Panel]]:
    restarts = by("cause", rate("dragoman_engine_restarts_total", MODEL))
    mended = {
        "tried again": total("dragoman_retried_total", MODEL),
        "quarantined": total("dragoman_quarantined_total", MODEL),
    }
    probes = by("result", rate("dragoman_canary_answers_total", MODEL))
    return [
        stacked("Restarts", "Workers that failed and began anew.", "cps", {"{{cause}}": restarts}, width=8),
        lines(
            "Contents of workers that failed",
            "Those that were tried again inside, and those that are refused because an engine failed with them twice.",
            "cps",
            mended,
            width=8,
        ),
        stacked(
            "Answers to probes",
            "They come when a server starts and every --canary-interval-s.",
            "cps",
            {"{{result}}": probes},
            {"equal": "green", "different": "red"},
            width=8,
        ),
    ]


def _callers() -> Sequence[Builder[Panel]]:
    over = by("caller, quota", rate("dragoman_caller_refusals_total", INSTANCE))
    others = "Everybody whom --callers does not name is `other`."
    return [
        stacked("Texts", f"Texts that were let in. {others}", "cps", _each("dragoman_caller_texts_total")),
        stacked(
            "Work",
            "Workers that each caller was expected to keep busy: seconds of a worker in a second.",
            "short",
            _each("dragoman_caller_cost_seconds_total"),
        ),
        stacked(
            "Calls under way",
            f"Calls of each caller that are not answered. {others}",
            "short",
            {"{{caller}}": by("caller", f"dragoman_caller_calls{{{INSTANCE}}}")},
        ),
        lines("Over a quota", "Calls refused with QUOTA_EXCEEDED.", "reqps", {"{{caller}}: {{quota}}": over}),
    ]


def _each(counter: str) -> dict[str, str]:
    return {"{{caller}}": by("caller", rate(counter, INSTANCE))}


def _kept_out() -> Sequence[Builder[Panel]]:
    files = ratio(by("instance", f"process_open_fds{{{INSTANCE}}}"), by("instance", f"process_max_fds{{{INSTANCE}}}"))
    reads = by("source, result", rate("dragoman_reloads_total", INSTANCE))
    return [
        lines("Strangers", "Calls of those who may not, by reason: see docs/api.md.", "reqps", _refused(STRANGERS)),
        lines(
            "Stalled, too large or malformed",
            "Calls that did not come or were not read in time, and messages that are none, by reason.",
            "reqps",
            _refused(GUARDS),
        ),
        lines(
            "Connections",
            "Share in use of the file descriptors that a server may have: each connection takes one.",
            "percentunit",
            {"{{instance}}": files},
            ((0.8, RED),),
        ),
        lines("Files read again", "Because they changed or SIGHUP came.", "cps", {"{{source}}: {{result}}": reads}),
    ]


def _refused(reasons: str) -> dict[str, str]:
    refused = by("reason", rate(REFUSALS, f'{INSTANCE}, reason=~"{reasons}"'))
    return {"{{reason}}": or_none(some(refused), "reason")}
