"""The picture of a search: its hypotheses from the left to the right, a column for every token."""

from collections.abc import Sequence
from math import exp
from xml.etree.ElementTree import Element, SubElement

from inspection.drawing import CHARACTER, canvas, shortened, write
from inspection.tree import Fate, Node, best_path, levels

COLUMN, ROW, MARGIN = 30, 26, 14
"""Pixels beside a label, of a row, and around the picture."""


def draw_search(root: Node, labels: Sequence[str]) -> Element:
    """labels: of every target token, by its id.

    Of each hypothesis its last token and the probability of that one; under it, sum(log p). ✕: it died. Of a result
    its place among them, and its score.
    """
    columns, best = levels(root), {*best_path(root)}
    to_results = {node for column in columns for one in column if one.rank is not None for node in one.path}
    told = {node: _label(node, labels) for column in columns for node in column}
    widths = [COLUMN + CHARACTER * max(len(told[node]) for node in column) for column in columns]
    starts = [MARGIN + sum(widths[:depth]) for depth in range(len(columns))]
    places = {node: (starts[node.depth], MARGIN + ROW * rank) for column in columns for rank, node in enumerate(column)}
    svg = canvas(starts[-1] + widths[-1], 2 * MARGIN + ROW * max(map(len, columns)), "The hypotheses of the search")
    for node, (x, y) in places.items():
        if node.parent is not None:
            from_x = places[node.parent][0] + 4 + CHARACTER * len(told[node.parent])
            from_y, middle = places[node.parent][1], (from_x + x) / 2
            kinds = ["edge", "best" if node in best else "result" if node in to_results else ""]
            curve = f"M{from_x:.0f} {from_y:.0f}C{middle:.0f} {from_y:.0f} {middle:.0f} {y:.0f} {x - 3:.0f} {y:.0f}"
            SubElement(svg, "path", {"d": curve, "class": " ".join(filter(None, kinds))})
    for node, (x, y) in places.items():
        kind = "best" if node in best else "died" if node.fate is Fate.DIED else ""
        group = SubElement(svg, "g", {"class": kind} if kind else {})
        write(group, x, y + 3, told[node])
        if node.parent is not None:
            score = "" if node.score is None else f" → {node.score:.3f}"
            write(group, x, y + 12, f"{node.total:.2f}{score}", {"class": "small"})
    return svg


def _label(node: Node, labels: Sequence[str]) -> str:
    if node.parent is None:
        return "▸"
    probability = "" if node.log_prob is None else f" {exp(node.log_prob):.2f}"
    mark = " ✕" if node.fate is Fate.DIED else "" if node.rank is None else f" #{node.rank + 1}"
    return f"{shortened(labels[node.token])}{probability}{mark}"
