"""Pictures as inline SVG: no script and no file beside it. What has no colour of its own has that of the text."""

import base64
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray

COLOUR = (47, 127, 214)
"""Of weights: seen on white and on black."""
CELL, LEAST, MOST = 13, 60, 240
"""Pixels of a token, and of a map at least and at most."""
CHARACTER, LINE, GAP = 6.2, 11, 10
"""Pixels of a character and of a line, and between two maps."""
LONGEST = 16
"""Characters of a label."""
NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file has, not even escaped: https://www.w3.org/TR/xml/#charsets"""
STYLE = """
svg { color: #1f2328; font: 10px system-ui, sans-serif; }
svg text { fill: currentColor; }
svg .frame { fill: none; stroke: currentColor; stroke-opacity: 0.25; }
svg .edge { fill: none; stroke: currentColor; stroke-opacity: 0.3; }
svg .edge.best { stroke: #2f7fd6; stroke-opacity: 1; stroke-width: 2; }
svg .edge.result { stroke-opacity: 0.8; }
svg .died { opacity: 0.55; }
svg .best { font-weight: 700; }
svg .small { font-size: 8px; opacity: 0.75; }
@media (prefers-color-scheme: dark) { svg { color: #e6edf3; } }
"""
"""Of all pictures."""


def canvas(width: float, height: float, title: str) -> Element:
    """An empty picture. `title`: what it shows, for those who do not see it."""
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "viewBox": f"0 0 {width:.0f} {height:.0f}"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **size})
    SubElement(svg, "title").text = title
    return svg


def write(parent: Element, x: float, y: float, text: str, more: Mapping[str, str] | None = None) -> Element:
    """Text that begins there, or as `more` says. U+FFFD stands for what a file of XML cannot have."""
    element = SubElement(parent, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **(more or {})})
    element.text = NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
    return element


def shortened(label: str) -> str:
    """As much of it as is shown."""
    label = " ".join(label.split())
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


def heat_maps(
    title: str, weights: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str], heads: Sequence[str]
) -> Element:
    """A map for every layer and head. weights: [layers, heads, rows, columns], from 0 to 1. rows look at columns."""
    rows, columns = [list(map(shortened, labels)) for labels in (rows, columns)]
    width, height = (min(max(CELL * len(labels), LEAST), MOST) for labels in (columns, rows))
    left, top = 26 + CHARACTER * max(map(len, rows)), 18 + CHARACTER * max(map(len, columns))
    across, down = left + len(heads) * (width + GAP), top + len(weights) * (height + GAP)
    svg = canvas(across, down, title)
    for head, name in enumerate(heads):
        x = left + head * (width + GAP)
        write(svg, x + width / 2, LINE, name, {"text-anchor": "middle"})
        _label_columns(svg, x, top - 4, width, columns)
    for layer, of_heads in enumerate(weights):
        y = top + layer * (height + GAP)
        if len(weights) > 1:
            turned = f"rotate(-90 {LINE} {y + height / 2:.1f})"
            write(svg, LINE, y + height / 2, f"layer {layer}", {"text-anchor": "middle", "transform": turned})
        _label_rows(svg, left - 4, y, height, rows)
        for head, of_head in enumerate(of_heads):
            _draw_map(svg, left + head * (width + GAP), y, (width, height), of_head)
    return svg


def _draw_map(svg: Element, x: float, y: float, size: tuple[float, float], weights: NDArray[np.float32]) -> None:
    box = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{size[0]:.1f}", "height": f"{size[1]:.1f}"}
    shown = {"preserveAspectRatio": "none", "style": "image-rendering: pixelated", "href": as_image(weights)}
    SubElement(svg, "image", box | shown)
    SubElement(svg, "rect", box | {"class": "frame"})


def _label_rows(svg: Element, x: float, y: float, height: float, labels: Sequence[str]) -> None:
    each = height / len(labels)
    for place, label in enumerate(labels):
        write(svg, x, y + (place + 0.5) * each + 3, label, {"text-anchor": "end"} | _size(each))


def _label_columns(svg: Element, x: float, y: float, width: float, labels: Sequence[str]) -> None:
    each = width / len(labels)
    for place, label in enumerate(labels):
        at = x + (place + 0.5) * each + 3
        write(svg, at, y, label, {"transform": f"rotate(-90 {at:.1f} {y:.1f})"} | _size(each))


def _size(room: float) -> dict[str, str]:
    return {} if room >= LINE else {"font-size": f"{max(room, 2):.1f}"}


def as_image(weights: NDArray[np.float32]) -> str:
    """Weights [rows, columns] as a picture of as many dots, in a data URI: one colour, opaque by the weight's root."""
    dots = np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    rows, columns = dots.shape
    lines = b"".join(b"\0" + line.tobytes() for line in dots)  # 0: no filter
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(COLOUR) * 256),
        (b"tRNS", bytes(range(256))),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
