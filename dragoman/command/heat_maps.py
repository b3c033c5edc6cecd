"""Heat maps of where every head of every layer looks: `dragoman translate --attention FILE`. Takes matplotlib."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unicodedata import east_asian_width

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text
from numpy.typing import NDArray

from dragoman.results.translation import Attention, Span, Translation

NORM = PowerNorm(0.5, vmin=0, vmax=1)
"""Small weights are seen, too."""
COLOURS, TICKS = "Blues", (0, 0.05, 0.2, 0.5, 1)
TOKEN, LEAST, MOST = 0.15, 1.0, 4.0
"""Inches of a token, and of a map at least and at most."""
CHARACTER, GAP, LEFT, RIGHT, ABOVE, BELOW = 0.07, 0.1, 0.4, 0.9, 0.7, 0.25
"""Inches of a character of a label, between two maps, and around all of them."""
POINTS, LEAST_POINTS, INCH_POINTS = 8.0, 4.5, 72
"""Of labels. Where a token has less room than the least, not every one has a label."""
LONGEST = 16
"""Characters of a label."""
DOTS = 110
"""Of an inch."""
NO_GLYPH, NO_TEXT = "□", "·"
"""In the place of a character that no font here has; the label of a token without text."""
FIRST_FONT, NO_FONT = "DejaVu Sans", "Last Resort"
"""Comes with matplotlib; the same, and has a picture for every character that says what it is not."""


@dataclass(frozen=True)
class Stack:
    """The maps of one attention: a row of them for every layer, a column for every head and one for their mean."""

    title: str
    weights: NDArray[np.float32]
    """[layers, heads, rows, columns]"""
    rows: Sequence[str]
    """The tokens that look."""
    columns: Sequence[str]
    """Those that they look at."""

    @property
    def map_size(self) -> tuple[float, float]:
        """Width and height, in inches, as all that follow."""
        width, height = (min(max(TOKEN * len(labels), LEAST), MOST) for labels in (self.columns, self.rows))
        return width, height

    @property
    def left(self) -> float:
        return LEFT + max(map(_inches, self.rows))

    @property
    def below(self) -> float:
        return BELOW + max(map(_inches, self.columns))

    @property
    def size(self) -> tuple[float, float]:
        layers, heads = self.weights.shape[:2]
        width, height = self.map_size
        return self.left + (heads + 1) * (width + GAP) + RIGHT, ABOVE + layers * (height + GAP) + self.below

    def draw(self, figure: Figure, top: float) -> None:
        """Into a figure, so far above its lower end."""
        width, height = self.map_size
        figure.text(
            *_part(figure, self.left, top - 0.2), self.title, fontsize=POINTS + 3, va="center", parse_math=False
        )
        for layer, heads in enumerate(self.weights):
            bottom = top - ABOVE - (layer + 1) * (height + GAP) + GAP
            for place, weights in enumerate([*heads, heads.mean(0)]):
                left = self.left + place * (width + GAP)
                ax = figure.add_axes((*_part(figure, left, bottom), *_part(figure, width, height)))
                _draw_map(ax, weights)
                if layer == 0:
                    ax.set_title(f"head {place}" if place < len(heads) else "mean", fontsize=POINTS)
                if place == 0:
                    ax.set_ylabel(f"layer {layer}", fontsize=POINTS)
                    _label(ax.yaxis, self.rows, height)
                if layer == len(self.weights) - 1:
                    _label(ax.xaxis, self.columns, width, rotation=90)


def draw(path: Path, text: str, translation: Translation) -> str:
    """Draws the attention of a translation's best hypothesis into a file, whose suffix says its format.

    Returns what people should know of the picture, or nothing. Raises ValueError where there is no attention, OSError.
    """
    best, of_source = translation.hypotheses[0], translation.source_attention
    if best.attention is None or of_source is None:
        raise ValueError("the translation has no attention: with_attention asks for it")
    source, target = _labels(text, of_source.spans), _labels(best.text, best.attention.spans)
    families, missing = _fonts_for({*"".join(source), *"".join(target)})
    source, target = ([_without(missing, label) for label in labels] for labels in (source, target))
    stacks = [
        Stack("decoder: where tokens of the translation look in the text", _array(best.attention), target, source),
        Stack("encoder: where tokens of the text look in it", _array(of_source), source, source),
    ]
    figure = Figure((max(one.size[0] for one in stacks), sum(one.size[1] for one in stacks)), dpi=DOTS)
    top = figure.get_figheight()
    for stack in stacks:
        stack.draw(figure, top)
        top -= stack.size[1]
    _draw_scale(figure, stacks[0])
    for words in figure.findobj(Text):
        assert isinstance(words, Text)
        words.set_fontfamily(families)
    figure.savefig(path)
    return f"no font of this machine has {' '.join(sorted(missing))}; those of Noto may" if missing else ""


def _array(attention: Attention) -> NDArray[np.float32]:
    return np.frombuffer(attention.weights, "<f2").reshape(attention.shape).astype(np.float32)


def _draw_map(ax: Axes, weights: NDArray[np.float32]) -> None:
    ax.imshow(weights, COLOURS, NORM, aspect="auto", interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(length=0, pad=2)
    for edge in ax.spines.values():
        edge.set_linewidth(0.4)


def _label(axis: Axis, labels: Sequence[str], inches: float, rotation: int = 0) -> None:
    """Puts so many labels beside an axis as it has room for."""
    points = INCH_POINTS * inches / len(labels)
    each = max(1, round(LEAST_POINTS / points + 0.49))
    places = range(0, len(labels), each)
    size = min(POINTS, points * each * 0.9)
    shown = [labels[place] for place in places]
    axis.set_ticks(list(places), shown, fontsize=size, rotation=rotation, parse_math=False)


def _draw_scale(figure: Figure, beside: Stack) -> None:
    """What the colours mean, at the right of the first maps."""
    width, height = figure.get_size_inches()
    tall = min(2.0, beside.size[1] - ABOVE - beside.below)
    ax = figure.add_axes((*_part(figure, width - RIGHT + 0.25, height - ABOVE - tall), *_part(figure, 0.15, tall)))
    bar = figure.colorbar(ScalarMappable(NORM, COLOURS), cax=ax, ticks=TICKS)
    bar.ax.tick_params(labelsize=POINTS, length=2)
    bar.outline.set_linewidth(0.4)


def _part(figure: Figure, width: float, height: float) -> tuple[float, float]:
    """Inches as parts of a figure."""
    whole = figure.get_size_inches()
    return width / whole[0], height / whole[1]


def _inches(label: str) -> float:
    """How long a label is, about."""
    return CHARACTER * sum(2 if east_asian_width(character) in "WF" else 1 for character in label)


def _labels(text: str, spans: Iterable[Span]) -> list[str]:
    shown = (" ".join(text[span.begin : span.end].split()) or NO_TEXT for span in spans)
    return [label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…" for label in shown]


def _without(missing: Iterable[str], label: str) -> str:
    return label.translate(dict.fromkeys(map(ord, missing), NO_GLYPH))


def _fonts_for(characters: set[str]) -> tuple[list[str], set[str]]:
    """Families of fonts that have some characters together, and those that none has."""
    families, missing = [FIRST_FONT], characters - _characters(font_manager.findfont(FIRST_FONT))
    plain = {one.name: one.fname for one in font_manager.fontManager.ttflist if one.style == "normal"}
    for name, file in sorted(plain.items()):
        if missing and not name.startswith(NO_FONT) and (found := missing & _characters(file)):
            missing -= found
            families.append(name)
    return families, missing


def _characters(file: str) -> set[str]:
    """Those that a font has. None, if its glyphs are pictures, which matplotlib does not draw."""
    try:
        font = FT2Font(file)
        font.set_size(POINTS, DOTS)
        return {chr(code) for code in font.get_charmap()}
    except (RuntimeError, OSError):
        return set()
