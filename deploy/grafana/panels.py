"""The kinds of panels. Each has a title, a description, a unit, thresholds, and a word for when it is empty."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
NO_TRAFFIC = "no traffic in this range"
STAT_HEIGHT, HEIGHT = 4, 8
GREEN, YELLOW, RED = "green", "yellow", "red"

Steps = Sequence[tuple[float, str]]
"""From which value on which color. Below the first it is the base color."""
Panel = TypeVar("Panel", stat.Panel, timeseries.Panel, heatmap.Panel, table.Panel)

LEAST_SHARE = 0.05
"""Where the axis of a share ends, if it stays below: one of nothing but zeros would reach 10,000 %."""


def number(
    title: str, description: str, unit: str, query: str, steps: Steps = (), base: str = GREEN, empty: str = NO_TRAFFIC
) -> stat.Panel:
    """The last value in large digits, colored by threshold, over a small graph."""
    panel = _describe(stat.Panel(), title, description, unit, steps, base, empty).span(4).height(STAT_HEIGHT)
    return (
        panel.with_target(_range(query, title))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.AREA)
    )


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Mapping[str, str],
    steps: Steps = (),
    width: int = 12,
) -> timeseries.Panel:
    """A graph over time: legend -> query. The thresholds are dashed lines."""
    panel = _describe(timeseries.Panel(), title, description, unit, steps, GREEN, NO_TRAFFIC).span(width).height(HEIGHT)
    for ref_id, (legend, query) in zip(ascii_uppercase, queries.items(), strict=False):
        panel.with_target(_range(query, legend, ref_id).exemplar("_bucket" in query))
    style = GraphTresholdsStyleMode.DASHED if steps else GraphTresholdsStyleMode.OFF
    if unit == "percentunit":
        panel.axis_soft_max(LEAST_SHARE)
    return (
        panel.min(0)
        .fill_opacity(8)
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(style))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .legend(_legend())
    )


def stacked(
    title: str,
    description: str,
    unit: str,
    queries: Mapping[str, str],
    colors: Mapping[str, str] | None = None,
    width: int = 12,
) -> timeseries.Panel:
    """Parts of a whole over time, one on the other. `colors`: legend -> color, where a color means something."""
    panel = lines(title, description, unit, queries, width=width)
    for legend, color in (colors or {}).items():
        fixed = {"mode": "fixed", "fixedColor": color}
        panel.override_by_name(legend, [DynamicConfigValue(id_val="color", value=fixed)])
    return panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(60)


def heat_map(title: str, description: str, unit: str, query: str) -> heatmap.Panel:
    """Observations by bucket and time: `query` counts them by `le`."""
    panel = _describe(heatmap.Panel(), title, description, unit, (), GREEN, NO_TRAFFIC).span(12).height(HEIGHT)
    return (
        panel.with_target(_range(query, "{{le}}").format(PromQueryFormat.HEATMAP).exemplar(True))
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Spectral").steps(64).reverse(False))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .cell_values(heatmap.CellValues().unit("short").decimals(0))
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .cell_gap(1)
        .show_tooltip()
        .show_y_histogram()
        .show_legend()
    )


def facts(title: str, description: str, query: str) -> table.Panel:
    """The labels of the series that there are now."""
    panel = _describe(table.Panel(), title, description, "none", (), GREEN, "no server in this range").span(12)
    excluded = dict.fromkeys(("Time", "Value", "__name__", "job"), True)
    return (
        panel.height(6)
        .with_target(
            prometheus.Dataquery().expr(query).instant().format(PromQueryFormat.TABLE).legend_format(title).ref_id("A")
        )
        .with_transformation(DataTransformerConfig(id_val="organize", options={"excludeByName": excluded}))
    )


def _range(query: str, legend: str, ref_id: str = "A") -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query).range().legend_format(legend).ref_id(ref_id)


def _describe(panel: Panel, title: str, description: str, unit: str, steps: Steps, base: str, empty: str) -> Panel:
    """What every kind of panel has."""
    levels = [Threshold(value=None, color=base), *(Threshold(value=value, color=color) for value, color in steps)]
    return (
        panel.title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .no_value(empty)
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(levels))
    )


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .show_legend(True)
    )
