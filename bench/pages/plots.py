"""Plots, as SVG: bars of several races, and lines over axes that grow by factors of two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

OURS, THEIRS = "#2f80c2", "#a9b4c0"
STYLE = {
    "svg.fonttype": "none",  # text as text
    "svg.hashsalt": "dragoman",  # the same figures give the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLUMNS = 3
FLOOR = "floor"
"""Lines whose name begins so are dashed."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines: the values of every series at each place of the axis."""

    title: str
    places: Sequence[float]
    series: Mapping[str, Sequence[float | None]]


def draw_bars(title: str, races: Mapping[str, Mapping[str, float]], ours: Sequence[str], file: Path) -> None:
    """A panel for each race: a bar from zero for each side, with its value. Those of `ours` stand out."""
    names = list(dict.fromkeys(name for race in races.values() for name in race))
    with style.context(STYLE):
        figure, panels = _panels(len(races), height=0.6 + 0.24 * len(names))
        for number, (axes, (race, values)) in enumerate(zip(panels, races.items(), strict=False)):
            rates = [values.get(name, 0.0) for name in names]
            bars = axes.barh(names, rates, color=[OURS if name in ours else THEIRS for name in names])
            axes.bar_label(bars, [f"{rate:,.0f}" if rate else "" for rate in rates], padding=3, fontsize=8)
            axes.set_title(race, loc="left", fontsize=10)
            axes.invert_yaxis()
            axes.margins(x=0.22)
            axes.xaxis.set_visible(False)
            axes.spines["bottom"].set_visible(False)
            axes.tick_params(axis="y", length=0, labelleft=number % COLUMNS == 0)
        _save(figure, title, file)


def draw_lines(title: str, charts: Sequence[Chart], file: Path) -> None:
    """Several charts with one legend. Both axes are logarithmic."""
    with style.context(STYLE):
        figure, panels = _panels(len(charts), height=2.2)
        for axes, chart in zip(panels, charts, strict=False):
            for name, values in chart.series.items():
                axes.plot(chart.places, np.array(values, float), "--" if name.startswith(FLOOR) else "-", label=name)
            axes.set_title(chart.title, loc="left", fontsize=10)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
            axes.set_xticks(chart.places)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.grid(axis="y", alpha=0.3)
        lines = {str(line.get_label()): line for axes in panels for line in axes.get_lines()}
        figure.legend(handles=list(lines.values()), loc="outside lower center", ncols=4, frameon=False)
        _save(figure, title, file)


def _panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """So many, in rows, each so many inches high."""
    rows = -(-count // COLUMNS)
    figure = Figure(figsize=(10, rows * height), layout="constrained")
    panels: list[Axes] = figure.subplots(rows, COLUMNS, squeeze=False).ravel().tolist()
    for empty in panels[count:]:
        empty.set_axis_off()
    return figure, panels


def _save(figure: Figure, title: str, file: Path) -> None:
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    figure.savefig(file, format="svg", metadata={"Title": title, "Date": None})
