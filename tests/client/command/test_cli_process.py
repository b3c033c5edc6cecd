"""The command line as a process, where signals, pipes and locales matter, against a real gRPC server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.client.fake_server import TOO_LONG, WAIT_S, FakeServer
from tests.server_process import WITHOUT_RIGHTS

ROOT = Path(__file__).parents[3]


def start(server: FakeServer, *argv: str | Path, **environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "dragoman", *argv],
        cwd=ROOT,
        env=os.environ | {"DRAGOMAN_TARGET": server.target} | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Ends what a failed test left running."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        with process:
            process.kill()


def test_standard_input_is_answered_line_by_line(
    server: FakeServer, processes: list["subprocess.Popen[bytes]"]
) -> None:
    process = start(server, "translate", "--file", "-")
    processes.append(process)
    assert process.stdin and process.stdout
    for text in (b"one", b"two"):
        process.stdin.write(text + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == text.upper() + b"\n"
    out, err = process.communicate(b"three", timeout=WAIT_S)
    assert (process.returncode, out, err) == (0, b"THREE\n", b"")


def test_standard_input_that_is_no_terminal_is_read_unasked(
    server: FakeServer, processes: list["subprocess.Popen[bytes]"]
) -> None:
    process = start(server, "translate")
    processes.append(process)
    assert process.communicate(b"one\ntwo\n", timeout=WAIT_S) == (b"ONE\nTWO\n", b"")
    assert process.returncode == 0


@pytest.mark.parametrize("verbosity", ["", "INFO"])
def test_grpc_keeps_silent_unless_told_otherwise(
    server: FakeServer, processes: list["subprocess.Popen[bytes]"], verbosity: str
) -> None:
    process = start(server, "health", "--tls", **({"GRPC_VERBOSITY": verbosity} if verbosity else {}))
    processes.append(process)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert b" does not speak TLS; " in err.splitlines()[-1]
    assert (len(err.splitlines()) > 1) is bool(verbosity)


@pytest.mark.parametrize("text", [b"hold\n", b""], ids=["waits for the server", "waits for input"])
def test_ctrl_c_ends_quietly(server: FakeServer, processes: list["subprocess.Popen[bytes]"], text: bytes) -> None:
    process = start(server, "translate", "--file", "-")
    processes.append(process)
    assert process.stdin and process.stdout
    process.stdin.write(b"one\n" + text)
    process.stdin.flush()
    assert process.stdout.readline() == b"ONE\n"
    assert not text or server.held.wait(WAIT_S)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    assert process.stderr and process.stderr.read() == b""
    assert not text or server.left.wait(WAIT_S)


def test_an_error_ends_the_run_though_input_is_still_open(
    server: FakeServer, processes: list["subprocess.Popen[bytes]"]
) -> None:
    process = start(server, "translate", "--file", "-")
    processes.append(process)
    assert process.stdin and process.stderr
    process.stdin.write(b"too long\n")
    process.stdin.flush()
    assert process.wait(WAIT_S) == 1
    assert process.stderr.read().decode() == f"dragoman: line 1: {TOO_LONG}\n"


def test_a_closed_pipe_ends_quietly(
    server: FakeServer, processes: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("a line\n" * 20_000)
    process = start(server, "translate", "--file", file)
    processes.append(process)
    assert process.stdout and process.stderr
    assert process.stdout.readline() == b"A LINE\n"
    process.stdout.close()
    assert process.wait(WAIT_S) == 141
    assert process.stderr.read() == b""


@pytest.mark.parametrize("words", [["--help"], ["show"], ["completion", "bash"]])
def test_nobody_who_reads_is_no_failure(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "dragoman", *words], stdout=output, stderr=subprocess.PIPE, timeout=WAIT_S
        )
    assert (done.returncode, done.stderr) == (141, b"")


WRITES = ["--help", "--version", "health", "translate a", "completion bash", "translate --help", "bulk --version"]
OTHERS = ("show", "pull", "rm", "export", "train", "inspect")


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [*product([*WRITES, *(f"{name} --help" for name in OTHERS)], ["", "1"])],
)
def test_a_full_disk_is_told_in_a_line(server: FakeServer, words: str, unbuffered: str) -> None:
    env = os.environ | {"DRAGOMAN_TARGET": server.target, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as output:
        command = [sys.executable, "-m", "dragoman", *words.split()]
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.PIPE, timeout=WAIT_S, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"dragoman: input or output: No space left on device\n")


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("translate a >&-", 0, b"", b""),
        ("translate a 2>&-", 0, b"A\n", b""),
        ("translate a --timings 2>&-", 0, b"A\n", b""),
        ("translate 'too long' 2>&-", 1, b"", b""),
        ("health <&- >&- 2>&-", 0, b"", b""),
        ("translate --file - <&-", 2, b"", b"dragoman translate: --file: - is standard input, which is closed\n"),
        (
            "translate --file ''",
            2,
            b"",
            b"dragoman translate: --file: is empty; name a file, or - for standard input\n",
        ),
    ],
)
def test_streams_that_are_closed_are_none_and_a_file_has_a_name(
    server: FakeServer, words: str, code: int, out: bytes, err: bytes
) -> None:
    done = subprocess.run(
        f"exec '{sys.executable}' -m dragoman {words}",
        shell=True,
        cwd=ROOT,
        env=os.environ | {"DRAGOMAN_TARGET": server.target},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_ctrl_c_ends_quietly_before_anything_is_asked(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    process = start(server, "translate", "a", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert process.communicate(timeout=WAIT_S) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.parametrize("where", ["argument", "file"])
def test_text_is_utf8_whatever_the_locale(
    server: FakeServer, processes: list["subprocess.Popen[bytes]"], where: str
) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    process = start(server, "translate", *(["maçã 語"] if where == "argument" else ["--file", "-"]), **ascii_only)
    processes.append(process)
    out, err = process.communicate("maçã 語\n".encode(), timeout=WAIT_S)
    assert (process.returncode, out.decode(), err) == (0, "MAÇÃ 語\n", b"")
    assert server.contents == ["maçã 語"]


def test_a_flag_is_utf8_whatever_the_locale(server: FakeServer, processes: list["subprocess.Popen[bytes]"]) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    words = ["--bad-words", "maçã", "--sequence-bias", "pêra=2"]
    process = start(server, "translate", "a", *words, **ascii_only)
    processes.append(process)
    assert process.communicate(timeout=WAIT_S) == (b"A\n", b"")
    decoding = server.requests[-1].decoding
    assert ([one.text for one in decoding.bad_words], decoding.sequence_bias[0].phrase.text) == (["maçã"], "pêra")


@pytest.mark.parametrize("written", [b"", b"\xff", b"a b"])
def test_a_token_file_that_is_just_being_written_ends_the_run_by_a_sentence(
    server: FakeServer, processes: list["subprocess.Popen[bytes]"], tmp_path: Path, written: bytes
) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    process = start(server, "translate", "--keep-going", "--token-file", token)
    processes.append(process)
    assert process.stdin and process.stdout
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ONE\n"
    token.write_bytes(written)
    _, err = process.communicate(b"two\nthree\n", timeout=WAIT_S)
    assert (process.returncode, err.count(b"\n")) == (1, 1)
    assert err.decode().startswith(f"dragoman: {token}: ")


def test_a_folder_that_takes_no_document_is_told_before_it_is_translated(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "letter.md").write_text("Good morning\n")
    (place := tmp_path / "place").mkdir(mode=0o500)
    words = ["translate", "--document", tmp_path / "letter.md", "--output", place / "letter.pt.md"]
    command = [*WITHOUT_RIGHTS, sys.executable, "-m", "dragoman", *words, "--target", server.target]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=WAIT_S)
    told = f"--output: {place} is a folder that nothing can be written to: write to another place"
    assert (done.returncode, done.stderr) == (2, f"dragoman translate: {told}\n")
    assert not server.requests
