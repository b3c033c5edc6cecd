"""Subtitles: SubRip (.srt) and WebVTT (.vtt; W3C). A cue is a text, whose lines are broken again where they were."""

import re
from collections.abc import Iterator

from server.errors import DocumentBroken
from server.text.documents.document import text_document
from server.text.documents.inline import Inline, settled
from server.text.html import DEEPEST
from server.text.parts import Copied, Part

TIME = r"(?:\d+:)?\d{1,2}:\d{2}[,.]\d{1,3}"
CUE = re.compile(
    rf"^(?P<head>[ \t]*{TIME}[ \t]+-->[ \t]+{TIME}[^\n]*\n)(?P<text>(?:[^\n]*\S[^\n]*(?:\n|\Z))*)", re.MULTILINE
)
"""The times of a cue, and what is said up to an empty line."""
MARKUP = re.compile(r"</?(?P<name>[A-Za-z]+)?[^<>\n]*>|\{\\[^{}\n]*\}|[^<{]+|.", re.DOTALL)
"""A tag, a position of SubStation Alpha, or text."""
LINE_END = re.compile(r"((?<![ \t])[ \t]*\r?\n)")
SPEAKER = re.compile(r"[ \t]*[-–—‐]")
"""Begins a line that somebody else says."""
SRT, VTT = "SubRip file (srt)", "WebVTT file (vtt)"


def _read_srt(text: str) -> list[Part]:
    parts = [*_parts(text)]
    if len(parts) < 2:
        raise DocumentBroken(SRT, "there is no cue in it, such as 00:00:01,000 --> 00:00:02,000")
    return parts


def _read_vtt(text: str) -> list[Part]:
    if not re.match(r"WEBVTT(?:[ \t\r\n]|\Z)", text):
        raise DocumentBroken(VTT, "it does not begin with WEBVTT")
    return [*_parts(text)]


def _parts(text: str) -> Iterator[Part]:
    at = 0
    for cue in CUE.finditer(text):
        yield Copied(text[at : cue.start("text")])
        for said in _speakers(cue["text"]):
            bare = said.rstrip()
            yield _said(bare)
            yield Copied(said[len(bare) :])
        at = cue.end()
    yield Copied(text[at:])


def _speakers(text: str) -> Iterator[str]:
    said = ""
    for line in text.splitlines(keepends=True):
        if said and SPEAKER.match(line):
            yield said
            said = ""
        said += line
    if said:
        yield said


def _said(text: str) -> Part:
    """With the lines of a cue as one text."""
    inline, opened = Inline(), list[tuple[str, int]]()
    for piece in MARKUP.finditer(text):
        raw, name = piece.group(), piece["name"]
        if not raw.startswith(("<", "{")) or len(raw) == 1:
            for place, line in enumerate(LINE_END.split(raw)):
                inline.soft(line) if place % 2 else inline.say(line)
        elif name is not None and not raw.startswith("</") and len(opened) < DEEPEST:
            opened.append((name, inline.open(raw)))
        elif raw.startswith("</") and name in (names := [one for one, _ in opened]):
            place = len(names) - 1 - names[::-1].index(name)
            inline.close(opened[place][1], raw)
            del opened[place:]
        else:
            inline.mark(raw)
    return inline.part(text)


open_srt = text_document(SRT, _read_srt, settled)
open_vtt = text_document(VTT, _read_vtt, settled)
