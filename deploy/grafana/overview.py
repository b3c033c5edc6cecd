"""Overview: is the service well? Traffic, errors, latency, saturation."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from deploy.grafana.frame import build
from deploy.grafana.panels import RED, YELLOW, lines, number, stacked
from deploy.grafana.queries import (
    ANSWERED,
    FAULTS,
    INSTANCE,
    MODEL,
    buckets,
    by,
    by_face,
    by_name,
    faces,
    named,
    or_none,
    quantile,
    rate,
    ratio,
    share,
    some,
    total,
)

CALLS = "dragoman_rpc_requests_total"
SECONDS = "dragoman_rpc_duration_seconds"
FAULTY = f'{INSTANCE}, code=~"{FAULTS}"'
SLOW = ((0.5, YELLOW), (1, RED))
"""One second is the objective of deploy/prometheus/rules/recording.yml."""
FULL = ((0.7, YELLOW), (0.9, RED))
BURNING = ((1, YELLOW), (6, RED))
FAILING = ((0.001, YELLOW), (0.01, RED))

QUEUE_FULL = ratio(f"sum(dragoman_requests_waiting{{{MODEL}}})", f"sum(dragoman_queue_capacity{{{MODEL}}})")
ROWS_FULL = ratio(f"sum(dragoman_rows_live{{{MODEL}}})", f"sum(dragoman_rows_capacity{{{MODEL}}})")


def dashboard() -> Dashboard:
    """All of it."""
    return build(
        "overview",
        "Overview",
        "Is the service well: traffic, errors, latency, saturation.",
        {
            "Now": [*_now(), *_objectives()],
            "Traffic and errors": _traffic(),
            "Latency of answered calls": _latency(),
            "Each API": _each_face(),
            "Saturation": _saturation(),
        },
    )


def _now() -> Sequence[Builder[Panel]]:
    serving = f'sum(dragoman_server_state{{{INSTANCE}, state="serving"}}) or vector(0)'
    p99 = quantile(0.99, buckets(SECONDS, f'{ANSWERED}, method=~".*/(Translate|ModelInfer)"'))
    tokens = total("dragoman_target_tokens_total", MODEL)
    return [
        number("Serving", "Servers that serve, of those chosen.", "short", serving, ((1, "green"),), RED),
        number("Calls", "RPCs answered in a second, refusals included.", "reqps", total(CALLS, INSTANCE)),
        number("Translate, p99", "99 % of the answered Translate and ModelInfer calls took less.", "s", p99, SLOW),
        number("Target tokens", "Tokens of best hypotheses in a second.", "tok/s", tokens),
        number(
            "Queue", "Share of the queue that is full. At 100 % calls are refused.", "percentunit", QUEUE_FULL, FULL
        ),
        number("Rows", "Share of the batches' rows in use.", "percentunit", ROWS_FULL),
    ]


def _objectives() -> Sequence[Builder[Panel]]:
    """From the recording rules, for whole jobs."""
    failed = share(total(CALLS, FAULTY), total(CALLS, INSTANCE))
    firing = 'count(ALERTS{alertname=~"Dragoman.*", alertstate="firing"}) or vector(0)'
    rules = "no calls yet, or the recording rules are not loaded"
    errors, slow = (
        f"max(job:dragoman_rpc_{kind}:ratio_rate1h) / scalar(dragoman:{kind}_budget:ratio)"
        for kind in ("errors", "slow")
    )
    burn = "How many times faster than allowed the budget of {} is used, over the last hour and all servers of a job."
    return [
        number("Failed calls", f"Share of RPCs that ended in {FAULTS}.", "percentunit", failed, FAILING).span(6),
        number("Error budget burn", burn.format("failed calls"), "x", errors, BURNING, empty=rules).span(6),
        number("Latency budget burn", burn.format("slow calls"), "x", slow, BURNING, empty=rules).span(6),
        number("Alerts", "Dragoman's alerts that fire.", "short", firing, ((1, RED),)).span(6),
    ]


def _traffic() -> Sequence[Builder[Panel]]:
    methods = by_name(rate(CALLS, INSTANCE))
    failed = share(by_name(rate(CALLS, FAULTY)), methods)
    refusals = or_none(some(by("reason", rate("dragoman_refusals_total", INSTANCE))), "reason")
    return [
        stacked(
            "Calls by face",
            "RPCs answered in a second, by the API that they came by.",
            "reqps",
            {"{{face}}": by_face(rate(CALLS, INSTANCE))},
            width=8,
        ),
        stacked(
            "Calls by method",
            "RPCs answered in a second, whatever the answer.",
            "reqps",
            {"{{name}}": methods},
            width=8,
        ),
        stacked(
            "Calls by code",
            "The same RPCs by their gRPC status.",
            "reqps",
            {"{{code}}": by("code", rate(CALLS, INSTANCE))},
            {"OK": "green", "CANCELLED": "gray"},
            width=8,
        ),
        lines(
            "Failed calls by method",
            f"Share of RPCs that ended in {FAULTS}: the server's fault, or too slow for the caller's deadline.",
            "percentunit",
            {"{{name}}": failed},
            FAILING,
        ),
        lines("Refusals", "Calls refused in a second, by reason: see docs/api.md.", "reqps", {"{{reason}}": refusals}),
    ]


def _each_face() -> Sequence[Builder[Panel]]:
    failed = share(by_face(rate(CALLS, FAULTY)), by_face(rate(CALLS, INSTANCE)))
    answered = faces(buckets(SECONDS, ANSWERED))
    return [
        lines(
            "Failed calls by face",
            f"Share of RPCs that ended in {FAULTS}, by the API that they came by.",
            "percentunit",
            {"{{face}}": failed},
            FAILING,
            width=8,
        ),
        *(
            lines(
                f"p{q * 100:g} by face",
                f"{q * 100:g} % of the answered calls took less, by the API that they came by.",
                "s",
                {"{{face}}": quantile(q, answered, "face")},
                SLOW,
                width=8,
            )
            for q in (0.5, 0.99)
        ),
    ]


def _latency() -> Sequence[Builder[Panel]]:
    return [
        lines(
            f"p{q * 100:g} by method",
            f"{q * 100:g} % of the answered calls took less. A stream takes until its last message.",
            "s",
            {"{{name}}": quantile(q, named(buckets(SECONDS, ANSWERED)), "name")},
            SLOW,
            width=8,
        )
        for q in (0.5, 0.9, 0.99)
    ]


def _saturation() -> Sequence[Builder[Panel]]:
    in_flight = by_name(f"dragoman_rpc_in_flight{{{INSTANCE}}}")
    queue = {
        "waiting": f"sum(dragoman_requests_waiting{{{MODEL}}})",
        "capacity": f"sum(dragoman_queue_capacity{{{MODEL}}})",
    }
    return [
        lines("Queue", "Contents that wait, and how many may.", "short", queue, width=8),
        lines(
            "Fullness",
            "Shares of the rows and of the queue in use. Full rows are good; a full queue is not.",
            "percentunit",
            {"rows": ROWS_FULL, "queue": QUEUE_FULL},
            width=8,
        ),
        stacked(
            "In flight",
            "RPCs whose answer is not sent.",
            "short",
            {"{{name}}": in_flight},
            width=8,
        ),
    ]
