"""Heat maps of attention: pictures of the right size and colours, whatever the tokens are."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from dragoman import Attention, FinishReason, Hypothesis, Span, Timings, Translation
from dragoman.command.flags.arguments import parse
from dragoman.command.heat_maps import DOTS, draw

TEXTS = {
    "latin": ("Two dogs bark.", "Dois cães ladram."),
    "many scripts": ("สวัสดี नमस्ते 你好 \n\t", "مرحبا 👩‍👩‍👧 é e\u0301 жизнь"),
    "what matplotlib would typeset": ("It costs $5 or $6_{", r"\frac{1} ^ $$ %"),
    "one character": ("a", "b"),
}


def spans(text: str) -> tuple[Span, ...]:
    """Tokens of three characters, and an end token."""
    return (*(Span(begin, min(begin + 3, len(text))) for begin in range(0, len(text), 3)), Span(0, 0))


def attention(tokens: tuple[Span, ...], source: int) -> Attention:
    """Of three heads in two layers."""
    weights = np.random.default_rng(1).dirichlet(np.ones(source), (2, 3, len(tokens))).astype("<f2")
    return Attention(tokens, weights.shape, weights.tobytes())


def translation(source: str, target: str) -> Translation:
    rows, columns, none = spans(target), spans(source), Timings(0, 0, 0, 0, 0, 0, 0, 0)
    of_target, of_source = attention(rows, len(columns)), attention(columns, len(columns))
    best = Hypothesis(target, -0.5, len(rows), FinishReason.END_TOKEN, attention=of_target)
    return Translation((best,), len(columns), none, source_attention=of_source)


@pytest.mark.parametrize("texts", TEXTS.values(), ids=list(TEXTS))
def test_whatever_the_tokens_are(texts: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = draw(file, texts[0], translation(*texts))
    assert not told or told.startswith("no font of this machine has ")
    height, width, _ = imread(file).shape
    assert width > 4 * DOTS and height > 4 * DOTS, "three heads and their mean, of four layers in all"


def test_what_is_dark_is_looked_at(tmp_path: Path) -> None:
    """The two maps that there are: everybody looks at the first token, and nobody at the last."""
    text, file = "ab", tmp_path / "picture.png"
    rows = (Span(0, 1), Span(1, 2))
    weights = np.tile(np.array([1, 0], "<f2"), (1, 1, 2, 1))
    seen = Attention(rows, weights.shape, weights.tobytes())
    best = Hypothesis(text, 0, 2, FinishReason.LENGTH, attention=seen)
    draw(file, text, Translation((best,), 2, Timings(0, 0, 0, 0, 0, 0, 0, 0), source_attention=seen))
    picture = imread(file)[:, :, :3]
    blue = (np.abs(picture - (8 / 255, 48 / 255, 107 / 255)).max(2) < 0.02).sum()
    # A half of four maps of an inch, and the end of the scale.
    assert blue == pytest.approx(4 * DOTS * DOTS / 2, rel=0.05)


def test_without_attention_there_is_nothing_to_draw(tmp_path: Path) -> None:
    best = Hypothesis("b", 0, 2, FinishReason.LENGTH)
    with pytest.raises(ValueError, match="with_attention"):
        draw(tmp_path / "picture.png", "a", Translation((best,), 2, Timings(0, 0, 0, 0, 0, 0, 0, 0)))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--attention", "a.png", "one", "two"], "of one text"),
        (["--attention", "a.png", "one\ntwo"], "of one text"),
        (["--attention", "a.png", "--file", "-"], "of one text"),
        (["--attention", "a.txt", "one"], ".txt is not one of .png"),
        (["--attention", "a", "one"], "no suffix is not one of .png"),
    ],
)
def test_what_cannot_be_drawn(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse("translate", arguments)
    assert end.value.code == 2 and told in capsys.readouterr().err


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("dragoman.command.flags.arguments.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        parse("translate", ["--attention", "a.png", "one"])
    assert "pip install 'dragoman[attention]'" in capsys.readouterr().err


def test_the_flag_asks_for_it() -> None:
    assert parse("translate", ["--attention", "a.png", "one"]).translation_options()["with_attention"] is True
    assert parse("translate", ["one"]).translation_options()["with_attention"] is None


def test_align_is_a_short_way_to_say_so() -> None:
    for flags, expected in (["--align"], True), (["--with-alignment"], True), ([], None):
        assert parse("translate", [*flags, "one"]).translation_options()["with_alignment"] is expected
