"""The tags of a text in HTML, by the tokens of the HTML standard (WHATWG HTML, section 13.2.5).

By one pattern: Python's parser takes time that grows with the square of some texts and fails on others, and those of
other libraries do not say where a tag stands.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

INLINE = frozenset(
    {"a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label"}
    | {"mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u"}
)
"""Elements that stand in the middle of sentences."""
VOID = frozenset({"br", "img", "input", "wbr"})
"""The same, with no end tag."""
COPIED_INLINE = frozenset({"code", "kbd", "samp", "var"})
"""The same, and no word of them is translated."""
COPIED_BLOCKS = frozenset(
    {"canvas", "iframe", "math", "object", "pre", "script", "select", "style", "svg", "template", "textarea"}
)
"""No word of them is translated either, and they end sentences."""
RAW = frozenset({"iframe", "script", "style", "textarea"})
"""In these nothing is a tag but their own end."""

TAG = re.compile(
    r"""
    <!--(?:-?>|.*?(?:--!?>|\Z))                                 # a comment
    | <(?P<end>/?)(?P<name>[A-Za-z][^\s/>]*)
      (?P<attributes>(?:[^"'>]++|"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z))*+)(?:>|\Z)
    | <[!?/][^>]*+(?:>|\Z)                                      # a declaration, or what browsers take for a comment
    """,
    re.DOTALL | re.VERBOSE,
)
ATTRIBUTE = re.compile(r"""([^\s"'>/=]++)(?:\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s>"']+)))?""")


class Kind(Enum):
    """What a piece of HTML does to the sentence that it stands in."""

    TEXT = auto()
    OPENS = auto()
    """An inline element."""
    CLOSES = auto()
    """An inline element."""
    MARK = auto()
    """It has nothing in it: a void tag, or a comment."""
    OBJECT = auto()
    """An inline element that is copied."""
    BREAK = auto()
    """It ends the sentence: any other tag, or an element that is copied."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of HTML. All pieces are all of it."""

    kind: Kind
    begin: int
    end: int
    name: str = ""


def tokens(html: str) -> Iterator[Token]:
    """In order."""
    at = 0
    while at < len(html):
        tag = TAG.search(html, at)
        begin = len(html) if tag is None else tag.start()
        if at < begin:
            yield Token(Kind.TEXT, at, begin)
        if tag is None:
            return
        token = _token(html, tag)
        yield token
        at = token.end


def _token(html: str, tag: "re.Match[str]") -> Token:
    begin, end = tag.span()
    if tag["name"] is None:
        is_comment = html.startswith("<!--", begin)
        return Token(Kind.MARK if is_comment else Kind.BREAK, begin, end)
    name, attributes = tag["name"].lower(), tag["attributes"]
    if tag["end"]:
        return Token(Kind.CLOSES if name in INLINE else Kind.BREAK, begin, end, name)
    if name in VOID or (name in INLINE and attributes.endswith("/")):
        return Token(Kind.MARK, begin, end, name)
    if name in COPIED_INLINE or name in COPIED_BLOCKS or _is_not_translated(attributes):
        inline = name in COPIED_INLINE or name in INLINE
        return Token(Kind.OBJECT if inline else Kind.BREAK, begin, _end_of(html, end, name), name)
    return Token(Kind.OPENS if name in INLINE else Kind.BREAK, begin, end, name)


def _is_not_translated(attributes: str) -> bool:
    """`translate` and `class` as HTML 5 and the page translators of browsers have them."""
    if "translate" not in attributes.lower():
        return False
    given = {name.lower(): a or b or c for name, a, b, c in ATTRIBUTE.findall(attributes)}
    return given.get("translate", "").lower() == "no" or "notranslate" in given.get("class", "").lower().split()


def _end_of(html: str, at: int, name: str) -> int:
    """The place after an element whose start tag ends here. Without an end tag: that of the text."""
    if name in RAW:
        found = re.compile(rf"</{name}[^>]*+(?:>|\Z)", re.IGNORECASE).search(html, at)
        return len(html) if found is None else found.end()
    depth = 1
    for tag in TAG.finditer(html, at):
        if tag["name"] is not None and tag["name"].lower() == name:
            depth += -1 if tag["end"] else 1
            if not depth:
                return tag.end()
    return len(html)
