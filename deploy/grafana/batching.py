"""Batching and waste: how full the shared steps are, and how much of what is computed is in an answer."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from deploy.grafana.frame import build
from deploy.grafana.panels import heat_map, lines, stacked
from deploy.grafana.queries import INSTANCE, MODEL, by, counts, mean, or_none, rate, ratio, some, total

TARGET = total("dragoman_target_tokens_total", MODEL)
ENDED = f"({TARGET} + {total('dragoman_rows_wasted_total', MODEL)})"
"""What was computed for contents that have ended. The rows of steps would run ahead of the tokens of answers."""


def dashboard() -> Dashboard:
    """All of it."""
    return build(
        "batching",
        "Batching and waste",
        "How full the shared steps are, and how much of what is computed is in an answer.",
        {"Batches": _batches(), "Waste": _waste(), "Contents": _contents(), "Answers that were there": _kept()},
    )


def _batches() -> Sequence[Builder[Panel]]:
    rows = mean("dragoman_step_rows", MODEL, "model, instance")
    occupancy = {
        "rows": ratio(f"sum(dragoman_rows_live{{{MODEL}}})", f"sum(dragoman_rows_capacity{{{MODEL}}})"),
        "cache": ratio(f"sum(dragoman_cache_tokens{{{MODEL}}})", f"sum(dragoman_cache_tokens_capacity{{{MODEL}}})"),
    }
    live = by("instance, worker", f"dragoman_rows_live{{{MODEL}}}")
    return [
        heat_map(
            "Rows of a step",
            "Rows that share a decoder step. Color: how many steps.",
            "short",
            counts("dragoman_step_rows", MODEL),
        ),
        lines("Mean rows of a step", "More rows share the cost of a step.", "short", {"{{model}} {{instance}}": rows}),
        lines(
            "Occupancy",
            "Shares of all rows, and of the tokens that their caches can hold, in use.",
            "percentunit",
            occupancy,
            ((0.9, "yellow"),),
        ),
        stacked(
            "Live rows", "Rows in use after a worker's last step.", "short", {"{{instance}} worker {{worker}}": live}
        ),
    ]


def _waste() -> Sequence[Builder[Panel]]:
    wasted = by("reason", rate("dragoman_rows_wasted_total", MODEL))
    encoder = by("kind", rate("dragoman_encoder_tokens_total", MODEL))
    moved = by("model, instance", rate("dragoman_cache_moved_bytes_total", MODEL))
    whole = by("instance", rate("dragoman_output_rows_total", f'{INSTANCE}, kind="whole"'))
    looked_at = by("instance", rate("dragoman_output_rows_total", INSTANCE))
    cut = by("instance", rate("dragoman_saturated_values_total", INSTANCE))
    no_kernels = ("instance", "standard graphs")
    return [
        stacked(
            "Computed tokens",
            "Decoder tokens computed in a second: those of answers (useful), of other beams (hypotheses), for callers "
            "who left or whose deadline passed (cancelled), on workers that failed. A content counts when it ends.",
            "tok/s",
            {"useful": TARGET, "{{reason}}": wasted},
            {"useful": "green", "hypotheses": "orange", "cancelled": "red", "failed": "purple"},
        ),
        lines(
            "Useful share",
            "Share of what was computed for contents that ended that is in an answer. Four beams make it some 25 %.",
            "percentunit",
            {"useful": ratio(TARGET, ENDED)},
        ),
        stacked(
            "Encoder tokens",
            "Tokens that the encoder computed in a second: of sources, and filling up to a device's shapes.",
            "tok/s",
            {"{{kind}}": encoder},
            {"source": "green", "padding": "orange"},
        ),
        lines("Cache moved", "Cache copied to reorder beams and close gaps.", "Bps", {"{{model}} {{instance}}": moved}),
        lines(
            "Output layers computed whole",
            "Share of the rows of all models for which our own operators could not rule out most tokens. They take "
            "several times as long.",
            "percentunit",
            {"{{instance}}": or_none(ratio(whole, looked_at), *no_kernels)},
        ),
        lines(
            "Values cut off",
            "Beyond the range that an 8-bit package was calibrated for. Many for ordinary texts: calibrate it better.",
            "cps",
            {"{{instance}}": or_none(cut, *no_kernels)},
        ),
    ]


def _contents() -> Sequence[Builder[Panel]]:
    tokens = {
        "source": total("dragoman_source_tokens_total", MODEL),
        "target": TARGET,
        "scored": total("dragoman_scored_tokens_total", MODEL),
    }
    refusals = or_none(some(by("reason", rate("dragoman_refusals_total", INSTANCE))), "reason")
    ends = {
        "{{reason}}": by("reason", rate("dragoman_finished_total", MODEL)),
        "cancelled": total("dragoman_cancellations_total", MODEL),
    }
    flags = by("flag", rate("dragoman_guard_flags_total", MODEL))
    return [
        lines(
            "Tokens",
            "Source and target tokens of answered contents, and of given targets, in a second.",
            "tok/s",
            tokens,
        ),
        lines("Refusals", "Calls refused in a second, by reason: see docs/api.md.", "reqps", {"{{reason}}": refusals}),
        stacked(
            "Ends",
            "How contents ended: `length` may be cut off.",
            "cps",
            ends,
            {"end_token": "green", "cancelled": "gray"},
        ),
        lines(
            "Suspicious",
            "Translations that look wrong: a loop, a copy of the source, cut at the limit, of an odd length, or in "
            "another script. One may have several flags.",
            "cps",
            {"{{flag}}": flags},
        ),
    ]


def _kept() -> Sequence[Builder[Panel]]:
    answers = {
        "kept": total("dragoman_answer_cache_hits_total", INSTANCE),
        "shared": total("dragoman_answers_shared_total", MODEL),
    }
    size = {
        "kept": f"sum(dragoman_answer_cache_bytes{{{INSTANCE}}})",
        "most": f"sum(dragoman_answer_cache_capacity_bytes{{{INSTANCE}}})",
    }
    return [
        stacked(
            "Answers of others",
            "Contents that took no row: the answer was kept, or an equal content was under way.",
            "cps",
            answers,
        ),
        lines("Answer cache", "Size of the answers that are kept, and what it may be.", "bytes", size),
    ]
