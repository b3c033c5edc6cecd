"""Documents of every format through a server with the model of the zoo, by gRPC, by HTTP and on the command line."""

import errno
import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import docx
import httpx
import pytest

from bench.process import free_port
from dragoman import Client, DocumentProgress, InvalidArgument, ResourceExhausted, TranslatedDocument
from dragoman.command.main import main
from tests.made_documents import DOCUMENTS, files
from tests.server_process import ROOT, WAIT_S, ServerProcess, server_process

PAIRS = {
    "txt": ["Bom dia.", "carro vermelho", "* * *\r\n"],
    "md": ["# Bom dia", "**carro vermelho**", '"A title")', "`code()`", "| Pão |", 'print("Where is the station?")'],
    "html": ["<b>carro vermelho</b>", "<pre>Not this</pre>"],
    "srt": ["00:00:01,000 --> 00:00:02,500\n<i>", "</i>\n\n2\n", "{\\an8}"],
    "vtt": ["NOTE This stays.", "<v Roger>", "00:01.000 --> 00:02.000 align:start", "estação", "Bo"],
    "po": ['"Language: pt\\n"', 'msgstr "Viva!"', '\\"%s\\"', "{n}"],
    "xliff": ['<g id="1">carro vermelho</g>', "<target>Viva!</target>", '<x id="2"/>'],
    "docx": ["O relatório anual"],
    "odt": ["O relatório anual"],
}
"""What the translation of the first document of each format has."""


@pytest.fixture(scope="module")
def http_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(http_port: int) -> Iterator[ServerProcess]:
    flags = "--http-port", http_port, "--max-document-texts", 60
    with server_process(ROOT / "models/zoo/en-pt", *flags) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target) as connected:
        yield connected


@pytest.fixture(scope="module")
def web(server: ServerProcess, http_port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{http_port}", timeout=WAIT_S, trust_env=False) as connected:
        yield connected


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_each_format(name: str, client: Client, web: httpx.Client) -> None:
    document = DOCUMENTS[name][0]
    *progress, last = client.translate_document(document, name, target_language="pt")  # type: ignore[arg-type]
    assert isinstance(last, TranslatedDocument)
    told = [one.texts for one in progress if isinstance(one, DocumentProgress)]
    assert told[0] == 0 and told == sorted(told) and told[-1] == last.texts > 0 and last.model == "en-pt"
    text = (
        files(last.document)[{"docx": "word/document.xml", "odt": "content.xml"}[name]]
        if name in ("docx", "odt")
        else last.document
    )
    assert [one for one in PAIRS[name] if one not in text.decode()] == []
    answer = web.post("/v1/document", params={"format": name, "target": "pt"}, content=document)
    assert answer.status_code == 200, answer.text
    assert (files(answer.content) if name in ("docx", "odt") else answer.content) == (
        files(last.document) if name in ("docx", "odt") else last.document
    )


def test_formats_of_words_stay_with_their_words(client: Client) -> None:
    with closing(client.translate_document(DOCUMENTS["docx"][0], "docx")) as events:
        [*_, last] = events
    assert isinstance(last, TranslatedDocument)
    runs = {run.text.strip(): run for one in docx.Document(BytesIO(last.document)).paragraphs for run in one.runs}
    assert runs["carro vermelho"].bold and not runs["carro vermelho"].italic


def test_progress_by_http(web: httpx.Client) -> None:
    document, events = b"Good morning.\n\nWhere is the station?\n", []
    asked = {"params": {"format": "txt"}, "content": document, "headers": {"accept": "text/event-stream"}}
    with web.stream("POST", "/v1/document", **asked) as answer:  # type: ignore[arg-type]
        lines = [line for line in answer.iter_lines() if line]
    for name, data in zip(lines[::2], lines[1::2], strict=True):
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert events[0] == ("progress", {"totalTexts": 2}) and events[-2] == ("progress", {"texts": 2, "totalTexts": 2})
    assert events[-1][0] == "document"
    assert b64decode(events[-1][1]["document"]).decode() == "Bom dia.\n\nOnde está a estação?\n"


def test_what_is_refused(client: Client, web: httpx.Client) -> None:
    """With both numbers, and the server goes on."""
    with pytest.raises(InvalidArgument) as broken:
        list(client.translate_document(b"Good morning.", "docx"))
    assert broken.value.reason == "DOCUMENT_BROKEN" and broken.value.violations[0].field == "document"
    with pytest.raises(ResourceExhausted, match="61 texts; the server takes 60") as large:
        list(client.translate_document(b"A word.\n" * 61, "txt"))
    assert large.value.reason == "DOCUMENT_TOO_LARGE"
    with pytest.raises(InvalidArgument, match="num_return_sequences is 2"):
        list(client.translate_document(b"A word.", "txt", num_beams=2, num_return_sequences=2))
    statuses = [
        web.post("/v1/document", params={"format": name}, content=content).status_code
        for name, content in (
            ("txt", b"A word.\n" * 61),
            ("zip", b"x"),
            ("docx", b"x"),
            ("txt", b""),
            ("txt", b"A" * 3_000_000),
        )
    ]
    assert statuses == [413, 400, 400, 400, 413]
    assert client.translate("Good morning.").text == "Bom dia."


def test_the_command_line(server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (document := tmp_path / "letter.md").write_text("# Good morning\n\nWhere is the *station*?\n")
    asked = ["translate", "--document", str(document), "--to", "pt", "--target", server.target]
    assert main(asked) == 0
    assert (tmp_path / "letter.pt.md").read_text() == "# Bom dia\n\nOnde está a *estação*?\n"
    assert capsys.readouterr().out == f"{tmp_path / 'letter.pt.md'}: 2 texts\n"
    (tmp_path / "broken.docx").write_bytes(b"PK")
    assert main(["translate", "--document", str(tmp_path / "broken.docx"), "--target", server.target]) == 1
    assert "DOCUMENT_BROKEN" in capsys.readouterr().err
    for size in 2 * 1024 * 1024, 4 * 1024 * 1024:  # refused by us, and by gRPC
        document.write_bytes(b"A" * size)
        assert main(asked) == 1
        told = r"the request has \d{7} bytes; the server takes \d{7}: .*parts, or have .*--max-message-bytes raised"
        assert re.search(told, capsys.readouterr().err)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["broken.docx", "letter.md", "letter.pt.md"]


def test_a_document_may_have_a_name_that_is_not_utf8(server: ServerProcess, tmp_path: Path) -> None:
    document = tmp_path / os.fsdecode(b"caf\xe9.txt")
    document.write_text("Good morning.\n")
    words = ["translate", "--document", str(document), "--to", "pt", "--target", server.target]
    done = subprocess.run([sys.executable, "-m", "dragoman", *words, "--json"], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert Path(json.loads(done.stdout)["output"]).read_text() == "Bom dia.\n"


def test_what_a_document_becomes_lies_behind_a_link(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link stays; as root it could be /dev/stdout. Where there is no room, it is said of which file."""
    (document := tmp_path / "letter.md").write_text("Good morning.\n")
    (tmp_path / "old.md").write_text("old")
    (link := tmp_path / "link.md").symlink_to("old.md")
    asked = ["translate", "--document", str(document), "--output", str(link), "--target", server.target]
    assert main(asked) == 0
    assert (link.readlink(), (tmp_path / "old.md").read_text()) == (Path("old.md"), "Bom dia.\n")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(asked) == 1
    assert capsys.readouterr().err.endswith(f"{link}: No space left on device\n")
