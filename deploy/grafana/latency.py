"""Latency: how long calls and contents take, and where the time goes."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from deploy.grafana.frame import build
from deploy.grafana.panels import heat_map, lines, stacked
from deploy.grafana.queries import ANSWERED, MODEL, buckets, by, counts, quantile, rate, ratio, split, total

PHASES = "dragoman_phase_duration_seconds"
STEPS = "dragoman_step_seconds_total"
PHASE_COLORS = {
    "queue": "orange",
    "tokenize": "purple",
    "encode": "blue",
    "decode": "green",
    "detokenize": "light-purple",
}


def dashboard() -> Dashboard:
    """All of it."""
    return build(
        "latency",
        "Latency",
        "How long calls and contents take, and where the time goes.",
        {
            "Calls": _distribution(
                "Answered calls",
                "From the arrival of an RPC to its last response.",
                "dragoman_rpc_duration_seconds",
                ANSWERED,
            ),
            "Queue": _distribution(
                "Queue", "From the arrival of a content to the row that it gets.", PHASES, f'{MODEL}, phase="queue"'
            ),
            "First token": _distribution(
                "First token",
                "From the arrival of a content in the queue to its first target token.",
                "dragoman_time_to_first_token_seconds",
                MODEL,
            ),
            "Between tokens": _distribution(
                "Between tokens",
                "From one token of a row to its next: the step, and encoder runs of newcomers before it.",
                "dragoman_inter_token_seconds",
                MODEL,
            ),
            "Where the time goes": _phases(),
        },
    )


def _distribution(name: str, meaning: str, metric: str, where: str) -> Sequence[Builder[Panel]]:
    """A histogram as a heat map, and three of its quantiles."""
    quantiles = {f"p{q * 100:g}": quantile(q, buckets(metric, where)) for q in (0.5, 0.9, 0.99)}
    return [
        heat_map(name, f"{meaning} Color: how many.", "s", counts(metric, where)),
        lines(f"{name}: quantiles", meaning, "s", quantiles),
    ]


def _phases() -> Sequence[Builder[Panel]]:
    """Every content is encoded once, so the encode phase counts the contents."""
    seconds = by("phase", rate(f"{PHASES}_sum", MODEL))
    contents = total(f"{PHASES}_count", f'{MODEL}, phase="encode"')
    parts = by("part", rate(STEPS, MODEL))
    outside = ratio(total(STEPS, f'{MODEL}, part="engine"'), total(STEPS, MODEL))
    return [
        stacked(
            "Phases of a content",
            "Mean seconds that a content spends in each phase. The height is the mean time of a content.",
            "s",
            {"{{phase}}": split(seconds, "phase", contents)},
            PHASE_COLORS,
        ),
        stacked(
            "Contents in each phase",
            "Seconds spent in a second, which is how many contents are in the phase on average.",
            "short",
            {"{{phase}}": seconds},
            PHASE_COLORS,
        ),
        stacked(
            "Inside a step",
            "Mean seconds of a decoder step inside ONNX Runtime (model) and outside (engine).",
            "s",
            {"{{part}}": split(parts, "part", total("dragoman_steps_total", MODEL))},
            {"model": "green", "engine": "orange"},
        ),
        lines(
            "Outside the model",
            "Share of the steps' time outside ONNX Runtime: search, bookkeeping, delivery.",
            "percentunit",
            {"engine": outside},
            ((0.3, "yellow"),),
        ),
    ]
