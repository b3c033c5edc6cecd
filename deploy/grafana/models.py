"""Model compare: the same figures for each version of each model."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from deploy.grafana.frame import build
from deploy.grafana.panels import RED, lines, stacked
from deploy.grafana.queries import MODEL, VERSIONS, buckets, by, or_none, quantile, rate, ratio, share, versioned

VERSION = "model, version"
LEGEND = "{{model}} {{version}}"


def dashboard() -> Dashboard:
    """All of it."""
    return build(
        "models",
        "Model compare",
        "The same figures for each version of each model. A version is the start of its package's hash.",
        {
            "State": _state(),
            "New versions": _new_versions(),
            "Traffic": _traffic(),
            "Speed": _speed(),
            "Answers": _answers(),
        },
    )


def _state() -> Sequence[Builder[Panel]]:
    serving = {"{{model}} serves": by("model", _now("dragoman_model_serving"))}
    failed = {"{{model}} failed": by("model", f"1 - {_now('dragoman_model_serving')}")}
    memory = {"{{model}} {{instance}}": _now("dragoman_model_memory_bytes")}
    return [
        lines(
            "Serving and failed",
            "Servers that have the model: those that serve it, and those where its engines failed for good.",
            "short",
            serving | failed,
        ),
        lines(
            "Memory", "What each model may come to take on each server: its weights and all its rows.", "bytes", memory
        ),
    ]


def _new_versions() -> Sequence[Builder[Panel]]:
    contents = by("result", rate("dragoman_shadow_contents_total", MODEL))
    colors = {"equal": "green", "different": "red", "dropped": "yellow"}
    return [
        lines(
            "Refused",
            "1 while the last new version of a model is not the one that is served: its server's log says why.",
            "short",
            {"{{model}} {{instance}}": _now("dragoman_model_reload_refused")},
            ((1, RED),),
            width=6,
        ),
        stacked(
            "Compared",
            "Live contents that a candidate was to answer, too: --shadow-share. Dropped: the server was busy.",
            "cps",
            {"{{result}}": or_none(contents, "result")},
            colors,
            width=6,
        ),
        lines(
            "Score difference",
            "Largest of equal texts, of the last candidate and the version that served.",
            "short",
            _last("dragoman_shadow_score_difference"),
            width=6,
        ),
        lines(
            "Slowdown",
            "Time of a worker that the last candidate took, for that of the version that served.",
            "short",
            _last("dragoman_shadow_slowdown"),
            width=6,
        ),
    ]


def _traffic() -> Sequence[Builder[Panel]]:
    servers = f"count by ({VERSION}) ({VERSIONS})"
    contents = _of("dragoman_phase_duration_seconds_count", f'{MODEL}, phase="encode"')
    tokens = _of("dragoman_target_tokens_total")
    return [
        lines("Servers", "Servers that have the version.", "short", {LEGEND: servers}, width=8),
        lines(
            "Contents",
            "Contents in a second that an engine answered: none whose answer was kept or shared.",
            "cps",
            {LEGEND: contents},
            width=8,
        ),
        lines("Target tokens", "Target tokens of answers in a second.", "tok/s", {LEGEND: tokens}, width=8),
    ]


def _speed() -> Sequence[Builder[Panel]]:
    figures = {
        "First token": ("dragoman_time_to_first_token_seconds", MODEL),
        "Between tokens": ("dragoman_inter_token_seconds", MODEL),
        "Decode": ("dragoman_phase_duration_seconds", f'{MODEL}, phase="decode"'),
    }
    return [
        lines(
            f"{name}, p{q * 100:g}",
            f"{q * 100:g} % took less.",
            "s",
            {LEGEND: quantile(q, versioned(buckets(metric, where)), VERSION)},
            width=8,
        )
        for q in (0.5, 0.99)
        for name, (metric, where) in figures.items()
    ]


def _answers() -> Sequence[Builder[Panel]]:
    finished, target = _of("dragoman_finished_total"), _of("dragoman_target_tokens_total")
    shares = {
        "Target tokens for a source token": (
            "Unlike another version's: it drops or invents text. Vectors and scores have source tokens alone: compare "
            "versions that are asked for the same.",
            "short",
            ratio(target, _of("dragoman_source_tokens_total")),
        ),
        "Cut off": (
            "Share of translations that ended at the limit of their length.",
            "percentunit",
            share(_of("dragoman_finished_total", f'{MODEL}, reason="length"'), finished),
        ),
        "Suspicious": (
            "Flags of a translation in the mean: what looks wrong of it, see docs/decoding.md. It may have several.",
            "short",
            share(_of("dragoman_guard_flags_total"), finished),
        ),
        "Useful share": (
            "Share of what was computed for contents that ended that is in an answer.",
            "percentunit",
            ratio(target, f"({target} + {_of('dragoman_rows_wasted_total')})"),
        ),
    }
    return [lines(title, meaning, unit, {LEGEND: query}) for title, (meaning, unit, query) in shares.items()]


def _of(metric: str, where: str = MODEL) -> str:
    """What a counter gains a second, for each version."""
    return by(VERSION, versioned(rate(metric, where)))


def _last(gauge: str) -> dict[str, str]:
    """What is known of the last candidate on each server, if there was one that was compared."""
    named = f'label_join({_now(gauge)}, "candidate", " ", "model", "instance")'
    return {"{{candidate}}": or_none(named, "candidate", "none")}


def _now(gauge: str) -> str:
    """Its last value, on each server."""
    return f"{gauge}{{{MODEL}}}"
