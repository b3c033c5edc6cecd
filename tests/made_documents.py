"""Documents that the libraries of their formats make, for tests."""

import zipfile
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import docx
import odfdo
import polib

TXT = b"\xef\xbb\xbfGood morning.\r\n\r\n  The red car is here. It is very old.\r\n* * *\r\n"
MD = b"""---
title: Front matter
---
# Good morning

The **red car** of my brother is *very* old. See [the
station](https://example.org "A title") and `code()`,
or write to <https://example.org/x>.

> A quote goes on
> in the next line.

1. Buy some bread.
2. ~~Sell~~ the house \\*now\\* &amp; wait.

| Name | Price |
|---|---|
| Bread | It is cheap. |

```python
print("Where is the station?")
```

<div>Not translated</div>

![A picture](x.png)
"""
HTML = b"<!doctype html><p>The <b>red car</b> is here.</p>\n<pre>Not this</pre><p>Unclosed <i>tag</p>"
SRT = b"""1
00:00:01,000 --> 00:00:02,500
<i>I was going
to the station.</i>

2
00:00:03,000 --> 00:00:04,000 X1:10
- Who are you?
- {\\an8}I am his brother.
"""
VTT = b"""WEBVTT - A film

NOTE This stays.

STYLE
::cue { color: red }

one
00:01.000 --> 00:02.000 align:start
<v Roger>Where is <c.loud>the station</c>?

00:00:03.000 --> 00:00:04.000
Good <00:00:03.500>morning.
"""
XLIFF_1 = b"""<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
 <file original="x" source-language="en" datatype="plaintext"><body>
  <trans-unit id="1">
   <source>The <g id="1">red car</g> of <x id="2"/> is here &amp; old.</source>
  </trans-unit>
  <trans-unit id="2"><source>Where is it?</source><target/></trans-unit>
  <trans-unit id="3"><source>Good morning.</source><target>Viva!</target></trans-unit>
  <trans-unit id="4" translate="no"><source>Dragoman</source></trans-unit>
 </body></file>
</xliff>
"""
XLIFF_2 = b"""<xliff version="2.0" srcLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
 <unit id="1"><segment><source>The <pc id="1">red car</pc> is here<ph id="2"/>.</source></segment></unit>
</file></xliff>
"""


def po() -> bytes:
    file = polib.POFile(wrapwidth=78)
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "", "Plural-Forms": "nplurals=2;"}
    file.append(polib.POEntry(msgid='Open the "%s" file.\nThen wait.', occurrences=[("main.c", "3")], comment="A note"))
    file.append(polib.POEntry(msgid="One car", msgid_plural="{n} cars", msgstr_plural={0: "", 1: ""}))
    file.append(polib.POEntry(msgid="Good morning.", msgstr="Viva!", flags=["fuzzy"]))
    file.append(polib.POEntry(msgid="Old", msgstr="", obsolete=True))
    return f"{file}\n".encode()


def word() -> bytes:
    """With a heading, formats, a tab, a line break, lists, a table, a header, a footer and a picture."""
    made = docx.Document()
    made.add_heading("The annual report", 1)
    paragraph = made.add_paragraph("The ")
    paragraph.add_run("red car").bold = True
    paragraph.add_run(" of my brother is ")
    paragraph.add_run("very").italic = True
    paragraph.add_run(" old.\tWhere is it?").add_break()
    paragraph.add_run("It is at the station.")
    made.add_paragraph("Buy <some> & bread.", style="List Bullet")
    table = made.add_table(rows=2, cols=2)
    for cell, text in zip((*table.rows[0].cells, *table.rows[1].cells), ("Name", "Price", "Bread", "3"), strict=True):
        cell.text = text
    made.sections[0].header.paragraphs[0].text = "This is a secret."
    made.sections[0].footer.paragraphs[0].text = "Good morning."
    made.add_picture(BytesIO(PICTURE))
    return _saved(made)


def open_document() -> bytes:
    """With a heading, a format, a link, a tab, a note, a list and a table."""
    made = odfdo.Document("text")
    body = made.body
    body.clear()
    body.append(odfdo.Header(1, "The annual report"))
    paragraph = odfdo.Paragraph("The red car of my brother is very old.\tWhere is it?\nIt is at the station.")
    paragraph.set_span("T1", regex="red car")
    paragraph.set_link("https://example.org", regex="brother")
    noted = odfdo.Paragraph("See the note here.")
    noted.insert_note(after="note", note_id="n1", citation="1", body="This is a note.")
    table = odfdo.Table("T", width=2, height=1)
    table.set_value((0, 0), "Name")
    table.set_value((1, 0), "Price")
    for one in (paragraph, noted, odfdo.List(["Buy some bread.", "Two  spaces"]), table):
        body.append(one)
    return _saved(made)


def _saved(made: Any) -> bytes:
    made.save(file := BytesIO())
    return file.getvalue()


def files(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def zipped(contents: Mapping[str, bytes]) -> bytes:
    with zipfile.ZipFile(file := BytesIO(), "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in contents.items():
            made.writestr(name, content)
    return file.getvalue()


PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
    "a5f645400000000049454e44ae426082"
)
DOCUMENTS: dict[str, list[bytes]] = {
    "txt": [TXT],
    "md": [MD],
    "html": [HTML],
    "srt": [SRT],
    "vtt": [VTT],
    "po": [po()],
    "xliff": [XLIFF_1, XLIFF_2],
    "docx": [word()],
    "odt": [open_document()],
}
"""By format."""
