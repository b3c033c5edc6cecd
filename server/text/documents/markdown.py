"""Markdown (CommonMark with tables and strikethrough), by the tokens of markdown-it.

The tokens say what there is, and the text itself is what is written again: code, addresses, HTML, lists, quotes and
front matter come back byte for byte.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from server.errors import DocumentTooLarge
from server.text.documents.document import Document, Languages, Limits, text_document
from server.text.documents.inline import Inline, settled
from server.text.parts import Copied, Part
from server.text.tags import INLINE

if TYPE_CHECKING:  # an extra
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

NAME = "Markdown file (md)"
FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
MOST_CHARACTERS = 256 * 1024
MOST_OF_PARAGRAPH = 16 * 1024
"""The time that some paragraphs take to read grows with the square."""
SPECIAL = frozenset("\\`*_[]<>#+-!|~&")
"""Characters that may mean something. Those that the text has mean nothing there."""
Env = dict[str, Any]
"""What a parse knows."""
ENDS = "dragoman.ends"
"""Under this, the environment of a parse has where every link and image ends, by where it begins."""
SOURCE = "dragoman.source"
"""And under this the text of the paragraph: those in the name of an image are read for themselves."""
LINE_END = re.compile(r"\n")
BREAK = re.compile(r"[ \t]*\\?\n[ \t]*")
FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,200}\]")
"""A mark of a footnote, which is text to CommonMark, or a link where the note is an address."""
NOTE = re.compile(r"\[\^[^\]\s]{1,200}\]:[ \t]*")
"""What a footnote begins with."""
TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>")


def open_md(data: bytes, limits: Limits, languages: Languages) -> Document:
    """See Format."""
    return text_document(NAME, _read, settled)(data, limits, languages)


def _read(text: str) -> list[Part]:
    if len(text) > MOST_CHARACTERS:
        raise DocumentTooLarge("characters", len(text), MOST_CHARACTERS)
    matter = FRONT_MATTER.match(text)
    first = matter.end() if matter is not None else 0
    parts, at = list[Part](), 0
    env: Env = {}
    for piece in _pieces(text, first, env):
        if isinstance(part := _part(text, piece, env), Copied):
            continue
        parts += [Copied(text[at : piece.begin]), part]
        at = piece.end
    return [*parts, Copied(text[at:])]


@dataclass(frozen=True, slots=True)
class _Piece:
    """What stands in lines that are one text."""

    lines: tuple[tuple[int, int], ...]
    """Of each where it begins and ends, without what is before it for the block that it is in."""
    block: str
    """What it is, such as "td"."""

    @property
    def begin(self) -> int:
        return self.lines[0][0]

    @property
    def end(self) -> int:
        return self.lines[-1][1]


def _pieces(text: str, first: int, env: Env) -> Iterator[_Piece]:
    """In order. first: the character where it begins. env: gets what links refer to."""
    starts = [first + found.end() for found in re.finditer(r"\A|\n", text[first:])]
    source = text[first:].replace("\r\n", " \n").replace("\r", " ")  # each of them is a line to the parser, not to us
    tokens, cell_line, cell_at = _parser().parse(source, env), -1, 0
    for before, token in pairwise(tokens):
        if token.type != "inline" or token.map is None or not token.content.strip():
            continue
        if len(token.content) > MOST_OF_PARAGRAPH:
            raise DocumentTooLarge("characters in a paragraph", len(token.content), MOST_OF_PARAGRAPH)
        line, texts, cells = token.map[0], [list[tuple[int, int]]()], before.tag in ("td", "th")
        if cells and line != cell_line:
            cell_line, cell_at = line, starts[line]
        for place, content in enumerate(token.content.split("\n")):
            begin = cell_at if cells else starts[line + place]
            end = starts[line + place + 1] if line + place + 1 < len(starts) else len(text)
            found = _find(text[begin:end], content.strip(), cells)
            if found is None:
                break
            note = NOTE.match(text, begin + found[0], begin + found[1])
            if note is not None and texts[-1]:  # to CommonMark, notes without blank lines between are one paragraph
                texts.append([])
            texts[-1].append((begin + found[0] if note is None else note.end(), begin + found[1]))
            cell_at = begin + found[1]
        else:
            yield from (_Piece(tuple(lines), before.tag) for lines in texts)


def _find(line: str, content: str, cell: bool) -> tuple[int, int] | None:
    """Where it stands in a line: in a cell as soon as may be, else as late."""
    if cell:
        content = content.replace("|", "\\|")
    begin = line.find(content) if cell else line.rfind(content)
    return None if begin < 0 else (begin, begin + len(content))


def _part(text: str, piece: _Piece, env: Env) -> Part:
    source = "\n".join(text[begin:end] for begin, end in piece.lines)
    between = [text[before:after] for (_, before), (after, _) in pairwise(piece.lines)]
    env[ENDS], env[SOURCE] = {}, source
    tokens: list[Token] = []
    parser = _parser()
    parser.inline.parse(source, parser, env, tokens)
    reader = _Reader(source, env[ENDS], iter(between))
    for token in tokens:
        reader.take(token)
    return reader.inline.part(source)


class _Reader:
    """Goes through a paragraph by its tokens, which say what there is, and not where."""

    def __init__(self, source: str, ends: Mapping[int, int], between: Iterator[str]) -> None:
        """`ends`: of links and images, by where they begin. between: what stands between its lines."""
        self._source, self._ends, self._between = source, ends, between
        self._at, self._skip = 0, 0
        self._links: list[tuple[int, int]] = []
        """Those that are open: their elements, and where they end."""
        self._opened: list[tuple[str, int]] = []
        """Other elements that are open, by what they are."""
        known = frozenset(source) & SPECIAL
        self.inline = Inline(lambda text: f"\\{text}" if text in SPECIAL and text not in known else text)

    def take(self, token: "Token") -> None:
        if self._skip:  # the text and the end of an address, which is there already
            self._skip -= 1
            return
        match token.type:
            case "text":
                self._say(self._raw(len(token.content)))
            case "softbreak" | "hardbreak":
                space = BREAK.match(self._source, self._at)
                self.inline.soft(self._raw(space.end() - self._at if space is not None else 0))
            case "link_open" if token.markup == "autolink":
                self.inline.object(self._raw(self._source.index(">", self._at) + 1 - self._at))
                self._skip = 2
            case "link_open" if FOOTNOTE.fullmatch(self._source, self._at, self._ends[self._at]):
                self.inline.object(self._raw(self._ends[self._at] - self._at))
                self._skip = 2
            case "link_open":
                end = self._ends[self._at]
                self._links.append((self.inline.open(self._raw(1)), end))
            case "link_close":
                place, end = self._links.pop()
                self.inline.close(place, self._raw(end - self._at))
            case "image":
                self.inline.mark(self._raw(self._ends[self._at] - self._at))
            case "code_inline":
                end = self._source.index(token.markup, self._at + len(token.markup))
                self.inline.object(self._raw(end + len(token.markup) - self._at))
            case "text_special":
                self.inline.object(self._raw(len(token.markup)))
            case "html_inline":
                self._html(self._raw(len(token.content)))
            case kind if kind.endswith("_open"):
                self._opened.append((kind[:-5], self.inline.open(self._raw(len(token.markup)))))
            case kind:
                self._close(kind.removesuffix("_close"), self._raw(len(token.markup)))

    def _raw(self, characters: int) -> str:
        """The next of the source, with what stands between lines."""
        raw = self._source[self._at : self._at + characters]
        self._at += characters
        return LINE_END.sub(lambda found: next(self._between, found.group()), raw)

    def _say(self, text: str) -> None:
        text, at = self.inline.spaced(text), 0
        for found in FOOTNOTE.finditer(text):
            self.inline.say(text[at : found.start()])
            self.inline.object(found.group())
            at = found.end()
        self.inline.say(text[at:])

    def _html(self, raw: str) -> None:
        tag = TAG.match(raw)
        if tag is None or tag[3] or tag[2].lower() not in INLINE:
            self.inline.mark(raw)
        elif tag[1]:
            self._close(tag[2].lower(), raw)
        else:
            self._opened.append((tag[2].lower(), self.inline.open(raw)))

    def _close(self, kind: str, raw: str) -> None:
        places = [index for index, (name, _) in enumerate(self._opened) if name == kind]
        if not places:
            self.inline.mark(raw)
            return
        self.inline.close(self._opened[places[-1]][1], raw)
        del self._opened[places[-1] :]


@cache
def _parser() -> "MarkdownIt":
    """Without its last step, which reads the paragraphs: they are read one at a time."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import image, link

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("inline")
    for name, rule in (("link", link), ("image", image)):
        parser.inline.ruler.at(name, _noting(rule))
    return parser


def _noting(rule: "Callable[[StateInline, bool], bool]") -> "Callable[[StateInline, bool], bool]":
    """The same rule, that notes where what it finds ends."""

    def noting(state: "StateInline", silent: bool) -> bool:
        begin = state.pos
        found = rule(state, silent)
        if found and not silent and state.env.get(SOURCE) is state.src:
            state.env[ENDS][begin] = state.pos
        return found

    return noting
