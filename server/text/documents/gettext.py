"""gettext's messages (.po; GNU gettext manual, "The Format of PO Files"): those without a translation get one."""

import re
from collections.abc import Iterator
from dataclasses import replace

from server.errors import DocumentBroken
from server.text.documents.document import Document, Languages, Limits, decoded
from server.text.parts import Copied, Part
from server.text.plain import read_plain

NAME = "gettext file (po)"
STRING = r'"(?:[^"\\\n]|\\.)*"'
FIELD = re.compile(
    rf"^(?P<name>msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)[ \t]+(?P<value>{STRING}(?:[ \t]*\r?\n[ \t]*{STRING})*)",
    re.MULTILINE,
)
"""A field of a message. Lines that begin with # are comments, and messages that are not used any more."""
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)")
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
WRITTEN = {ord(meant): f"\\{letter}" for letter, meant in LETTERS.items()} | {ord('"'): '\\"', ord("\\"): "\\\\"}
LANGUAGE = re.compile(r"(\\n\"\s*\")?(Language:[ ]*)\\n")


def open_po(data: bytes, limits: Limits, languages: Languages) -> Document:
    """See Format."""
    text = decoded(data, NAME)
    fields = [*FIELD.finditer(text)]
    if not any(one["name"] == "msgid" for one in fields):
        raise DocumentBroken(NAME, "there is no msgid in it")
    parts, at, said, plural, header = list[Part](), 0, "", "", False
    for one in fields:
        begin, end = one.span("value")
        value = meant(one["value"])
        if one["name"] == "msgid":
            said = plural = value
            header = not value
        elif one["name"] == "msgid_plural":
            plural = value
        elif one["name"].startswith("msgstr"):
            parts.append(Copied(text[at:begin]))
            many = one["name"] not in ("msgstr", "msgstr[0]")
            parts += _header(one["value"], languages) if header else _translated(one["value"], plural if many else said)
            at = end
    parts.append(Copied(text[at:]))
    return Document([parts], lambda members: members[0].encode())


def meant(value: str) -> str:
    """What strings say that stand after each other."""
    return ESCAPE.sub(_meant, "".join(one[1:-1] for one in re.findall(STRING, value)))


def _meant(found: "re.Match[str]") -> str:
    code: str = found[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else LETTERS.get(code, code)


def written(text: str) -> str:
    """A text inside of a string."""
    return text.translate(WRITTEN)


def _header(value: str, languages: Languages) -> Iterator[Part]:
    """With the language of the translations, if it says nothing of that."""
    if languages.target:
        value = LANGUAGE.sub(lambda found: f"{found[1] or ''}Language: {languages.target}\\n", value)
    yield Copied(value)


def _translated(value: str, said: str) -> Iterator[Part]:
    """What is translated already stays."""
    if meant(value) or not any(character.isalnum() for character in said):
        yield Copied(value)
        return
    yield Copied('"')
    yield from map(_escaped, read_plain(said))
    yield Copied('"')


def _escaped(part: Part) -> Part:
    return Copied(written(part.raw)) if isinstance(part, Copied) else replace(part, escape=written)
