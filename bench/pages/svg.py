"""Plots as SVG: lines over axes that grow by factors of two, and bars. Nothing else is drawn here, so no library."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#2f80c2", "#e0803a", "#3a9d6a", "#8e5bb5", "#c0504d", "#52606d", "#b8962e", "#4aa3a2")
INK, FAINT = "#1f2933", "#d9dee4"
WIDTH, HEIGHT = 300, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 28, 34
LEGEND = 22


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines: the values of every series at each place of the axis."""

    title: str
    places: Sequence[float]
    series: Mapping[str, Sequence[float | None]]


def line_charts(title: str, charts: Sequence[Chart], columns: int = 3) -> str:
    """Several charts in rows, with one legend. Both axes are logarithmic; a dashed line is a floor."""
    names = list(dict.fromkeys(name for chart in charts for name in chart.series))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    rows = -(-len(charts) // columns)
    parts = []
    for index, chart in enumerate(charts):
        across, down = index % columns * WIDTH, index // columns * HEIGHT + LEGEND
        parts.append(f'<g transform="translate({across} {down})">{_lines(chart, colours)}</g>')
    return _page(title, columns * WIDTH, rows * HEIGHT + LEGEND, [_legend(colours), *parts])


def bar_chart(title: str, groups: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Groups of bars from zero, each with its value above."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    width, height = 960, 330
    most = max((value for bars in groups.values() for value in bars.values()), default=1.0)
    each = (width - LEFT - RIGHT) / max(1, len(groups))
    bar = each * 0.86 / max(1, len(names))
    parts = [_legend(colours), _text(LEFT, LEGEND + 18, unit, "start")]
    for place, (group, bars) in enumerate(groups.items()):
        left = LEFT + place * each
        parts.append(_text(left + each / 2, height - 12, group, "middle"))
        for name, value in bars.items():
            x, tall = left + each * 0.07 + names.index(name) * bar, value / most * (height - LEGEND - 80)
            top = height - BOTTOM - tall
            parts.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{bar * 0.9:.1f}" height="{tall:.1f}" fill="{colours[name]}"/>'
            )
            parts.append(_text(x + bar * 0.45, top - 4, f"{value:,.0f}", "middle", 9))
    parts.append(f'<path d="M{LEFT} {height - BOTTOM}H{width - RIGHT}" stroke="{INK}"/>')
    return _page(title, width, height, parts)


def _lines(chart: Chart, colours: Mapping[str, str]) -> str:
    values = [value for series in chart.series.values() for value in series if value]
    if not values:
        return ""
    least, most = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    first, last = math.log2(min(chart.places)), math.log2(max(chart.places))

    def x(place: float) -> float:
        return LEFT + (math.log2(place) - first) / max(last - first, 1e-9) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (most - math.log2(value)) / max(most - least, 1) * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, TOP - 10, chart.title, "start", 12)]
    for power in range(least, most + 1):
        parts.append(f'<path d="M{LEFT} {y(2.0**power):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        parts.append(_text(LEFT - 5, y(2.0**power) + 4, f"{2.0**power:g}", "end", 10))
    parts += [_text(x(place), HEIGHT - BOTTOM + 15, f"{place:g}", "middle", 10) for place in chart.places]
    for name, series in chart.series.items():
        points = [(x(place), y(value)) for place, value in zip(chart.places, series, strict=True) if value]
        path = "L".join(f"{across:.1f} {down:.1f}" for across, down in points)
        dashes = ' stroke-dasharray="4 3"' if name.startswith("floor") else ""
        parts.append(f'<path d="M{path}" fill="none" stroke="{colours[name]}" stroke-width="1.8"{dashes}/>')
    return "".join(parts)


def _legend(colours: Mapping[str, str]) -> str:
    parts, x = [], 12.0
    for name, colour in colours.items():
        parts.append(f'<rect x="{x:.0f}" y="6" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, 15, name, "start", 11))
        x += 26 + 6.3 * len(name)
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{INK}" text-anchor="{anchor}">{escape(text)}</text>'


def _page(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    white = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", white, *parts, "</svg>", ""])
