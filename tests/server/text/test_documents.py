"""server.text.documents: nothing but texts changes, no text is lost, and what is no document is refused."""

import zipfile
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from itertools import count
from typing import Any
from xml.etree import ElementTree

import docx
import polib
import pytest
import srt
import webvtt
from markdown_it import MarkdownIt

from server.errors import BlankContent, DocumentBroken, DocumentTooLarge, ServerError
from server.text.documents.document import Document, Languages, Limits, put_together
from server.text.documents.formats import FORMATS, read_document, unpacked_bytes
from server.text.parts import OBJECT, Block, Copied, Part
from server.text.placed import WORDS, Word, marked_up
from tests.made_documents import DOCUMENTS, XLIFF_1, XLIFF_2, files, zipped

LIMITS = Limits(1024 * 1024, 100)
ALL = [(name, data) for name, made in DOCUMENTS.items() for data in made]
IDS = [name for name, _ in ALL]


def opened(name: str, data: bytes) -> Document:
    assert unpacked_bytes(name, data, LIMITS) <= LIMITS.bytes
    return read_document(name, data, LIMITS, Languages("en", "pt"))


def texts(document: Document) -> list[str]:
    return [part.text for member in document.members for part in member if isinstance(part, Block)]


def translated(name: str, data: bytes, said: Callable[[str], str] = str) -> bytes:
    """A document with every word said in another way."""
    document = opened(name, data)
    return put_together(document, [_written(part, said) for member in document.members for part in member])


def _written(part: Part, said: Callable[[str], str]) -> str:
    if isinstance(part, Copied):
        return part.raw
    objects = count()
    words = [
        Word(part.objects[next(objects)].raw, found.start(), raw=True)
        if found.group() == OBJECT and part.objects
        else Word(said(found.group()), found.start())
        for found in WORDS.finditer(part.text)
    ]
    return marked_up(part, words)


@pytest.mark.parametrize(("name", "data"), ALL, ids=IDS)
def test_a_document_whose_texts_stay_is_the_same(name: str, data: bytes) -> None:
    """Byte for byte, but for targets that were not there, and for runs of one format that are one now."""
    again = translated(name, data)
    if name == "odt":
        assert files(again) == files(data)
    elif name == "docx":
        first, second = (docx.Document(BytesIO(one)) for one in (data, again))
        assert paragraphs(first) == paragraphs(second)
        changed = {name for name, content in files(data).items() if files(again)[name] != content}
        assert changed <= {"word/document.xml", "word/header1.xml", "word/footer1.xml"}
    elif name in ("po", "xliff"):
        assert translated(name, again) == again
    else:
        assert again == data


def paragraphs(made: Any) -> list[tuple[str, list[tuple[str, bool | None, bool | None]]]]:
    """Of a Word document: the style of each, and its runs, those of one format together."""
    found = []
    for paragraph in (*made.paragraphs, *(cell.paragraphs[0] for row in made.tables[0].rows for cell in row.cells)):
        runs: list[tuple[str, bool | None, bool | None]] = []
        for run in paragraph.runs:
            if runs and runs[-1][1:] == (run.bold, run.italic):
                runs[-1] = (runs[-1][0] + run.text, run.bold, run.italic)
            else:
                runs.append((run.text, run.bold, run.italic))
        found.append((paragraph.style.name, runs))
    return found


def structure(name: str, data: bytes) -> Any:
    """What a library that is not ours finds in a document, but for its words."""
    match name:
        case "txt":
            return [bool(line.strip()) for line in data.decode().splitlines()]
        case "md":
            tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(data.decode())
            return [
                (one.type, one.tag, one.content if one.type in ("fence", "html_block") else "", _inline(one.children))
                for one in tokens
            ]
        case "html":
            return None  # tests/server/text/test_html.py
        case "srt":
            return [(one.index, one.start, one.end, one.proprietary) for one in srt.parse(data.decode())]
        case "vtt":
            return [(one.identifier, one.start, one.end) for one in webvtt.from_buffer(BytesIO(data)).captions]
        case "po":
            file = polib.pofile(data.decode())
            return [(one.msgid, one.occurrences, one.comment, one.flags, one.obsolete) for one in file]
        case "docx":
            made = docx.Document(BytesIO(data))
            return [(style, [run[1:] for run in runs]) for style, runs in paragraphs(made)], len(made.inline_shapes)
        case _:
            xml = files(data)["content.xml"] if name == "odt" else data
            return Counter(
                (one.tag, tuple(one.attrib.items()))
                for one in ElementTree.fromstring(xml).iter()
                if "target" not in one.tag
            )


def _inline(children: Any) -> Counter[tuple[str, str, str]]:
    """Links and code with what they say; of emphasis, what there is."""
    kept = [one for one in children or () if one.type not in ("text", "softbreak")]
    return Counter(
        (one.type, one.markup, str(one.attrs) + (one.content if one.type == "code_inline" else "")) for one in kept
    )


@pytest.mark.parametrize(
    ("name", "data"), [one for one in ALL if one[0] != "xliff"], ids=[one for one in IDS if one != "xliff"]
)
def test_libraries_find_the_same_structure_with_other_words(name: str, data: bytes) -> None:
    again = translated(name, data, str.swapcase)
    assert structure(name, again) == structure(name, data)
    assert texts(opened(name, again)) == [one.swapcase() for one in texts(opened(name, data))] or name == "po"


@pytest.mark.parametrize(("data", "told"), [(XLIFF_1, 2), (XLIFF_2, 1)], ids=["1.2", "2.0"])
def test_segments_of_xliff_get_a_target_where_they_have_none(data: bytes, told: int) -> None:
    document = opened("xliff", data)
    again = translated("xliff", data, str.upper)
    assert document.texts == told and opened("xliff", again).texts == 0
    root = ElementTree.fromstring(again)
    space = root.tag.partition("}")[0] + "}"
    targets = ["".join(one.itertext()) for one in root.iter(space + "target")]
    assert targets[0].startswith("THE RED CAR")
    if data is XLIFF_1:
        assert targets[1:] == ["WHERE IS IT?", "Viva!"]
        assert root[0].attrib["target-language"] == "pt"
    else:
        assert root.attrib["trgLang"] == "pt"


XXE = b"""<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>"""
LAUGHS = b"""<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>"""


def with_file(archive: bytes, name: str, content: bytes) -> bytes:
    return zipped({**files(archive), name: content})


def in_xml(before: bytes, data: bytes) -> bytes:
    """A document type at the beginning of XML, with an entity used in it."""
    head, _, rest = data.rpartition(b"?>")
    return (head + b"?>" if head else b"") + before + rest.replace(b"The ", b"&e;&c;", 1)


def bomb() -> bytes:
    return with_file(WORD, "word/media/big.bin", bytes(LIMITS.bytes + 1))


def lying_bomb() -> bytes:
    """It says that it unpacks to little."""
    data = bytearray(bomb())
    size = (LIMITS.bytes + 1).to_bytes(4, "little")
    return bytes(data.replace(size, (1000).to_bytes(4, "little")))


def twice() -> bytes:
    with zipfile.ZipFile(file := BytesIO(WORD), "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("word/document.xml", b"<x/>")
    return file.getvalue()


WORD, ODT = DOCUMENTS["docx"][0], DOCUMENTS["odt"][0]
BODY, CONTENT = files(WORD)["word/document.xml"], "content.xml"
BAD: dict[str, tuple[str, bytes, type[ServerError], str]] = {
    "nothing": ("txt", b"", BlankContent, "0 characters"),
    "blanks": ("md", b" \n\n", BlankContent, "3 characters"),
    "latin-1": ("txt", "é".encode("latin-1"), DocumentBroken, "0xe9"),
    "utf-16": ("srt", DOCUMENTS["srt"][0].decode().encode("utf-16"), DocumentBroken, "UTF-8"),
    "an archive as text": ("txt", WORD, DocumentBroken, "UTF-8"),
    "text as an archive": ("docx", b"Good morning.", DocumentBroken, "zip"),
    "odt as docx": ("docx", ODT, DocumentBroken, "no [Content_Types].xml"),
    "docx as odt": ("odt", WORD, DocumentBroken, "no mimetype"),
    "a sheet": (
        "odt",
        with_file(ODT, "mimetype", b"application/vnd.oasis.opendocument.spreadsheet"),
        DocumentBroken,
        "mimetype",
    ),
    "an archive that ends early": ("docx", WORD[:-40], DocumentBroken, "zip"),
    "an archive that is damaged": ("docx", WORD.replace(WORD[200:220], bytes(20)), DocumentBroken, ""),
    "two files of a name": ("docx", b"", DocumentBroken, "two files"),
    "a way out": ("docx", with_file(WORD, "../../etc/x", b"x"), DocumentBroken, "leads out"),
    "an absolute way out": ("odt", with_file(ODT, "/etc/x", b"x"), DocumentBroken, "leads out"),
    "a bomb": ("docx", bomb(), DocumentTooLarge, "unpacked; the server takes 1048576"),
    "a bomb that lies": ("docx", lying_bomb(), DocumentBroken, ""),
    "no times": ("srt", b"Good morning.\n", DocumentBroken, "no cue"),
    "no WEBVTT": ("vtt", DOCUMENTS["srt"][0], DocumentBroken, "WEBVTT"),
    "no messages": ("po", b"# nothing\n", DocumentBroken, "msgid"),
    "other XML": ("xliff", b"<html/>", DocumentBroken, "XLIFF"),
    "unclosed": ("xliff", XLIFF_1[:-10], DocumentBroken, "line"),
    "latin-1 XML": ("xliff", XLIFF_1.replace(b"UTF-8", b"latin-1"), DocumentBroken, "latin-1"),
    "xxe": ("xliff", in_xml(XXE, XLIFF_1), DocumentBroken, "document type"),
    "laughs": ("xliff", in_xml(LAUGHS, XLIFF_1), DocumentBroken, "document type"),
    "xxe in docx": ("docx", with_file(WORD, "word/document.xml", in_xml(XXE, BODY)), DocumentBroken, "document type"),
    "laughs in docx": (
        "docx",
        with_file(WORD, "word/document.xml", in_xml(LAUGHS, BODY)),
        DocumentBroken,
        "document type",
    ),
    "laughs in types": (
        "docx",
        with_file(WORD, "[Content_Types].xml", in_xml(LAUGHS, b"<x/>")),
        DocumentBroken,
        "document type",
    ),
    "xxe in odt": (
        "odt",
        with_file(ODT, "content.xml", in_xml(XXE, files(ODT)["content.xml"])),
        DocumentBroken,
        "document type",
    ),
    "a deep well": ("xliff", b"<a>" * 1000, DocumentTooLarge, "elements inside of each other"),
    "too many texts": ("txt", b"A line.\n" * 101, DocumentTooLarge, "101 texts; the server takes 100"),
    "too large": ("txt", b"A" * (LIMITS.bytes + 1), DocumentTooLarge, "1048577 bytes; the server takes 1048576"),
    "many brackets": ("md", b"[" * 20_000, DocumentTooLarge, "characters in a paragraph"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_document_is_refused(case: str) -> None:
    name, data, kind, told = BAD[case]
    with pytest.raises(kind) as refused:
        opened(name, twice() if case == "two files of a name" else data)
    assert told in refused.value.message and refused.value.field == "document"


LONG = 200_000
CUE = b"1\n00:00:01,000 --> 00:00:02,000\n"
NOTE = b"<text:p>", b"<text:note><text:note-body>", b"</text:note-body></text:note>", b"</text:p>"
BODY_END = b"</office:text>"
DEEP = (NOTE[0] + NOTE[1]) * 30 + NOTE[0] + b"Deep." + NOTE[3] + (NOTE[2] + NOTE[3]) * 30
HARD = {
    "one line of stars": ("md", b"Hello\n```\n" + b"*" * LONG + b"\n```\n"),
    "one line of spaces": ("txt", b"One" + b" " * LONG + b"word\n"),
    "a cue of spaces": ("srt", CUE + b"One" + b" " * LONG + b"word\n"),
    "a cue of tags": ("srt", CUE + b"One <i>" * (LONG // 8) + b"word" + b"</i>" * (LONG // 8) + b"\n"),
    "notes in notes": ("odt", with_file(ODT, CONTENT, files(ODT)[CONTENT].replace(BODY_END, DEEP + BODY_END))),
}
"""Of each, what took time that grew with the square, or doubled with each level."""


@pytest.mark.parametrize("case", HARD)
def test_what_is_hard_to_read_takes_no_longer_than_its_length(case: str) -> None:
    """The server would stand still for hours: what a regular expression looks for, every thread waits for."""
    name, data = HARD[case]
    again = translated(name, data)
    assert files(again) == files(data) if name == "odt" else again == data


def test_a_long_segment_of_xliff_has_its_codes_once() -> None:
    words = b"".join(b"%d " % number for number in range(60_000))
    data = XLIFF_1.replace(b"<source>", b'<source><g id="all">' + words + b"</g>", 1)
    again = translated("xliff", data)
    assert again.count(b'<g id="all">') == 2 and again.count(words.strip()) == 2


def test_every_format_has_its_documents() -> None:
    assert FORMATS.keys() == DOCUMENTS.keys()


def test_a_model_cannot_write_markup() -> None:
    evil = "</w:t></w:r><w:p/>\0\ufdd2\uffff1\uffff"
    again = translated("docx", WORD, lambda text: evil if text.isalpha() else text)
    found = docx.Document(BytesIO(again))
    assert found.paragraphs[0].text.startswith("</w:t></w:r><w:p/>1 ")
    assert len(found.paragraphs) == len(docx.Document(BytesIO(WORD)).paragraphs)
    assert translated("md", b"One word.\n", lambda text: "*" if text == "One" else text) == b"\\* word.\n"


FOOTNOTES = b"""\
One[^1] and [two[^b]](z) and[^x-y] three[^2].

[^1]: One note.
[^b]: https://example.org
[^2]: Another note
    in two lines.
"""


def test_marks_of_footnotes_in_markdown_are_copied() -> None:
    assert translated("md", FOOTNOTES) == FOOTNOTES
    upper = translated("md", FOOTNOTES, str.upper).decode()
    assert upper.startswith("ONE[^1] AND [TWO[^b]](z) AND[^x-y] THREE[^2].\n\n[^1]: ONE NOTE.\n[^b]: ")
    assert texts(opened("md", FOOTNOTES))[1:] == ["One note.", "https://example.org", "Another note in two lines."]
    assert "[^" not in "".join(texts(opened("md", FOOTNOTES)))


@pytest.mark.parametrize(
    ("name", "written"), [("md", b"See ![a dog](x.png) here.\n"), ("html", b'<p>See <img src="x"> here.</p>')]
)
def test_a_picture_keeps_the_spaces_around_it(name: str, written: bytes) -> None:
    """The model is asked for words with a single space between them."""
    assert texts(opened(name, written)) == ["See here."]
    assert translated(name, written) == written


def test_fields_links_and_notes_of_word_stay() -> None:
    """A page number is the program's, and what a link says is text."""
    run = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    code = "<w:r><w:instrText>{}</w:instrText></w:r>"
    said = "<w:r><w:t>{}</w:t></w:r>"
    page = run.format("begin") + code.format(" PAGE ") + run.format("separate") + said.format("7") + run.format("end")
    link = (
        run.format("begin")
        + code.format(' HYPERLINK "x" ')
        + run.format("separate")
        + said.format("here")
        + run.format("end")
    )
    box = "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>In a box.</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>"
    body = f"<w:p><w:r><w:t>See page </w:t></w:r>{page}<w:r><w:t> or </w:t></w:r>{link}{box}</w:p>".encode()
    data = with_file(WORD, "word/document.xml", BODY.replace(b"<w:body>", b"<w:body>" + body, 1))
    assert texts(opened("docx", data))[0] == f"See page {OBJECT} or here"
    assert "In a box." in texts(opened("docx", data))
    again = files(translated("docx", data, str.upper))["word/document.xml"].decode()
    assert page.replace("<w:t>", '<w:t xml:space="preserve">') in again and ">HERE<" in again and ">IN A BOX.<" in again
    assert [one for one in ("begin", "separate", "end") if again.count(one) != 2] == []


def test_text_between_two_fields_of_word_is_text() -> None:
    """Of which the first began in a paragraph before, as that of a table of contents does."""
    fields = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("end", "begin", "end")]
    body = f"<w:p>{fields[0]}<w:r><w:t>One word.</w:t></w:r>{fields[1]}{fields[2]}</w:p>".encode()
    data = with_file(WORD, "word/document.xml", BODY.replace(b"<w:body>", b"<w:body>" + body, 1))
    assert texts(opened("docx", data))[0].startswith("One word.")
