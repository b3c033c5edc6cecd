"""server.text.html and server.text.placed: whatever the translation, every tag is there, nested well."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape, unescape
from html.parser import HTMLParser
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.links import Link
from engine.request import FinishReason
from server.text.html import DEEPEST, read_html
from server.text.parts import Block, Copied
from server.text.pieces import Fixed, Piece, Sentence, joined, pieces
from server.text.placed import Word, marked_up
from server.text.protected import Glossary
from server.translation.targets import Alignment, TargetText

WORDS = ["The", "red", "car", "is", "fast", "&", "<", "it's", "é", "42", "{x}"]
INLINE = ["b", "i", "a", "span", "em", "code"]


def text_of(html: str) -> list[str]:
    return [part.text for part in read_html(html) if isinstance(part, Block)]


class Nested(HTMLParser):
    """Raises where tags are not nested well, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen = Counter[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def nested(html: str) -> Counter[str]:
    reader = Nested()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader.seen


def inline(depth: int, marks: bool = True) -> st.SearchStrategy[str]:
    words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(lambda chosen: escape(" ".join(chosen)))
    if not depth:
        return words
    tags = st.tuples(st.sampled_from(INLINE), inline(depth - 1, marks)).map(lambda pair: "<{0}>{1}</{0}>".format(*pair))
    lone = st.sampled_from(["<br>", '<img src="x">', "<!-- note -->", "<b></b>"])
    return st.lists(st.one_of(words, tags, *[lone] * marks), min_size=1, max_size=4).map(" ".join)


def pages(marks: bool = True) -> st.SearchStrategy[str]:
    blocks = st.lists(inline(3, marks), min_size=1, max_size=3)
    return blocks.map(lambda found: "".join(f"<p>{one}.</p>\n" for one in found))


def answer(piece: Piece, random: Random) -> list[Word]:
    """As a model's that says the words in another order, leaves some out, and looks anywhere."""
    if isinstance(piece, Fixed):
        return list(piece.words)
    words = piece.wording.content.split()
    kept = [word for word in words if word in piece.wording.names or random.random() < 0.8]
    random.shuffle(kept)
    text = " ".join(kept)
    if not piece.wording.keeps(text):
        return [word for part in piece.split() for word in answer(part, random)]
    begins = [0, *(place + 1 for place, character in enumerate(text) if character == " ")]
    spans = tuple((begin, begin + len(word)) for begin, word in zip(begins, kept, strict=False))
    content = piece.wording.content
    edges = [0, *(place + 1 for place, character in enumerate(content) if character == " "), len(content) + 1]
    sources = tuple((begin, end - 1) for begin, end in pairwise(edges))
    links = tuple(
        Link(random.randrange(len(sources)), target, random.random())
        for target in range(len(spans))
        if random.random() < 0.9
    )
    return list(
        piece.words(TargetText(text, 0.0, 1, FinishReason.END_TOKEN, alignment=Alignment(sources, spans, links)))
    )


def rewritten(html: str, random: Random) -> str:
    written = []
    for part in read_html(html):
        if isinstance(part, Copied):
            written.append(part.raw)
            continue
        words, _ = joined([*pieces(part, "en", Glossary(), lambda _: True)], lambda one: answer(one, random))
        written.append(marked_up(part, words))
    return "".join(written)


@settings(max_examples=200, deadline=None)
@given(pages(), st.integers(0, 1000))
def test_every_tag_is_there_and_nested_well(html: str, seed: int) -> None:
    before, after = nested(html), nested(rewritten(html, Random(seed)))
    assert before.keys() == after.keys()
    assert all(after[tag] >= count for tag, count in before.items())


@given(pages(marks=False))
def test_what_is_said_word_by_word_comes_back(html: str) -> None:
    """Where every word comes from itself, the page is as it was, but for white space."""
    written = []
    for part in read_html(html):
        if isinstance(part, Copied):
            written.append(part.raw)
            continue
        words = [Word(character, place) for place, character in enumerate(part.text)]
        objects = iter(part.objects)
        words = [Word(next(objects).raw, word.origin, True) if word.text == "\ufffc" else word for word in words]
        written.append(marked_up(part, words))
    assert "".join(unescape("".join(written)).split()) == "".join(unescape(html).split())


@pytest.mark.parametrize(
    ("html", "texts"),
    [
        ("<p>The <b>red</b>\n  car.</p><p>It</p>", ["The red car.", "It"]),
        ("a &lt; b &amp; c &eacute;", ["a < b & c é"]),
        ("<script>if (a < b) c()</script>x<style>p{}</style>", ["x"]),
        ("<pre>x <b>y</b></pre> z", ["z"]),
        ('<span class="big notranslate">Foo <span>x</span></span> is', ["\ufffc is"]),
        ('<div translate="no"><p>a</p></div>', []),
        ("one<br>two", ["one two"]),
        ("a < b", ["a < b"]),
        ("one <p", ["one"]),
        ("<ul>\n <li>x</li>\n</ul>", ["x"]),
        ("<!doctype html><?php x ?><![CDATA[y]]>z", ["z"]),
        ("💡 <b>42</b>", ["💡 42"]),
        ("<b>!</b> <i></i>", []),
    ],
)
def test_what_there_is_to_translate(html: str, texts: list[str]) -> None:
    assert text_of(html) == texts


@pytest.mark.parametrize(
    "html",
    [
        "<b>one <i>two</b> three",
        "</b>one",
        "<a href=x><p>one</p></a>",
        "<b>" * 80 + "x" + "</b>" * 80,
        "a<b",
        "<p>x</i>y</p>",
    ],
)
def test_broken_markup_keeps_its_tags(html: str) -> None:
    """A copy of a page has the same ones; one more where an element ends inside of another."""
    assert DEEPEST < 80
    [*tags] = html.replace("<", " <").replace(">", "> ").split()
    back = rewritten(html, Random(0))
    assert all(tag in back for tag in tags if tag.startswith("<") and tag.endswith(">"))


def test_unlinked_words_are_in_the_elements_of_both_neighbours() -> None:
    [block] = read_html("<b>one two</b> three")
    assert isinstance(block, Block)
    words = [Word("um", 0), Word(" ", None), Word("dois", None), Word(" ", None), Word("x", 4), Word("três", 8)]
    assert marked_up(block, words) == "<b>um dois x</b>três"


def placed(source: Sequence[str], target: Sequence[str], links: Sequence[Link], html: str) -> str:
    """A page of one sentence, translated word by word with these links."""
    [block] = read_html(html)
    assert isinstance(block, Block)
    [sentence] = pieces(block, "en", Glossary(), lambda _: True)
    assert isinstance(sentence, Sentence)
    alignment = Alignment(tuple(spans_of(source)), tuple(spans_of(target)), tuple(links))
    words = sentence.words(TargetText(" ".join(target), 0.0, 1, FinishReason.END_TOKEN, alignment=alignment))
    return marked_up(block, list(words))


def spans_of(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    at = 0
    for word in words:
        yield at, at + len(word)
        at += len(word) + 1


def test_a_noun_that_looks_at_its_adjective_too_comes_from_the_noun() -> None:
    links = [Link(0, 0, 0.67), Link(1, 0, 0.32), Link(0, 1, 0.99)]
    found = placed(["authentic", "community"], ["comunidade", "autêntica"], links, "authentic <b>community</b>")
    assert found == "<b>comunidade</b> autêntica"


def test_a_tag_that_no_word_comes_from_goes_around_the_word_that_looks_there_most() -> None:
    links = [Link(0, 0, 0.6), Link(1, 0, 0.4), Link(0, 1, 0.1), Link(1, 1, 0.1), Link(2, 1, 0.8)]
    found = placed(["will", "face", "it"], ["enfrentará", "isso"], links, "<i>will</i> <b>face</b> it")
    assert found == "<i><b>enfrentará</b></i> isso"
