"""What the command line says of what is wrong, in this process, against a real gRPC server."""

import sys
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest

import dragoman.command.progress
from dragoman.command.commands import OWN
from tests.client.command.command_line import Dragoman, Result, Terminal
from tests.client.fake_server import Failure, overloaded
from tests.client.test_client_connection import free_target

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("argv", [["translate", "a"], ["encode", "a"], ["models"], ["health"]], ids=lambda c: c[0])
def test_without_a_server_the_error_says_how_to_get_one(command: Dragoman, argv: list[str]) -> None:
    target = free_target()
    result = command(*argv, "--target", target)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"no server at {target} (" in result.err
    assert "(Failed to connect to remote host: Connection refused); in a checkout" in result.err
    assert "text 1" not in result.err


def test_a_server_elsewhere_is_not_started_here(command: Dragoman) -> None:
    err = command("health", "--target", "nosuch.invalid:8500").err
    assert "no server at nosuch.invalid:8500 (" in err
    assert err.endswith("; is it running, and can this machine reach it; check --target, --tls and --ca\n")
    assert "make" not in err


def test_an_http_port_is_called_one(command: Dragoman) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as metrics:
        Thread(target=metrics.serve_forever).start()
        try:
            target = f"127.0.0.1:{metrics.server_port}"
            message = "is no gRPC port, but perhaps an HTTP port, such as a server's metrics port; check --target"
            for argv in (["translate", "a"], ["health"]):
                result = command(*argv, "--target", target)
                assert (result.code, result.out) == (1, "")
                assert f"dragoman: {target} {message}\n" in result.err
        finally:
            metrics.shutdown()


def test_an_answer_too_late_names_the_flag(command: Dragoman) -> None:
    result = command("translate", "hold", "--timeout", "0.3")
    assert result == Result(1, "", "dragoman: text 1: no answer within 0.3 s; allow more with --timeout\n")


def test_an_overloaded_server_is_not_a_missing_one(command: Dragoman) -> None:
    command.server.failures = deque([overloaded(pushback_ms=-1)])
    assert command("translate", "a").err == "dragoman: the queue is full (OVERLOADED)\n"


def test_an_option_that_is_refused_is_not_blamed_on_a_text(command: Dragoman, file: Path) -> None:
    details = BadRequest(field_violations=[BadRequest.FieldViolation(field="decoding.num_beams")])
    command.server.failures = deque([Failure(grpc.StatusCode.INVALID_ARGUMENT, "num_beams is 99", (details,))])
    file.write_text("one\ntwo\n")
    result = command("translate", "--file", file, "--keep-going", "--concurrency", "1")
    assert result == Result(1, "", "dragoman: num_beams is 99 (INVALID_ARGUMENT)\n")


def test_an_error_is_one_line(command: Dragoman) -> None:
    command.server.failures = deque([Failure(grpc.StatusCode.INTERNAL, "first\nsecond")])
    assert command("models") == Result(1, "", "dragoman: first second (INTERNAL)\n")


def test_a_file_that_cannot_be_read_is_named(command: Dragoman, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert command("translate", "--file", missing).err == f"dragoman: {missing}: No such file or directory\n"
    assert command("translate", "--file", tmp_path).err == f"dragoman: {tmp_path}: Is a directory\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["serves"], "dragoman: 'serves' is no command"),
        (["translat"], "dragoman: 'translat' is no command; did you mean translate?"),
        (["--beams"], "dragoman: '--beams' is no command"),
        (["translate", "a", "--file", "b"], "dragoman translate: --file: not allowed with a TEXT"),
        (["translate", "a", "--num-beams", "four"], "dragoman translate: --num-beams: 'four' is not a whole number"),
        (["translate", "a", "--num-beams", "9999999999"], "--num-beams: 9999999999 does not fit 32 bits"),
        (["translate", "a", "--length-penalty", "long"], "--length-penalty: 'long' is not a number"),
        (["translate", "a", "--early-stopping", "maybe"], "--early-stopping: 'maybe' is not one of false, true, never"),
        (["translate", "a", "--num-beam", "4"], "translate: --num-beam is no flag; did you mean --num-beams?"),
        (["translate", "a", "--beams=4"], "translate: --beams is no flag; did you mean --num-beams?"),
        (["bulk", "a", "b", "--ray", ""], 'dragoman bulk: --ray: is empty; give HOST:PORT, or "auto"'),
        (["models", "--model", "x"], "dragoman models: --model is no flag; see dragoman models --help\n"),
        (
            ["translate", "a", "--glossary", "no/such"],
            "--glossary: no/such cannot be read: No such file or directory\n",
        ),
        (["models", "en-pt"], "dragoman models: 'en-pt' is not understood; see dragoman models --help"),
        (["translate", "a", "--concurrency", "0"], "--concurrency: 0 is not from 1 to 1000"),
        (["health", "--timeout", "0"], "--timeout: 0 is not above 0 and at most 1000000000 seconds"),
        (["health", "--timeout", "inf"], "--timeout: inf is not above 0 and at most 1000000000 seconds"),
        (["health", "--timeout", "1e10"], "--timeout: 1e10 is not above 0 and at most 1000000000 seconds"),
        (["health", "--target", " "], "--target: a target is empty; give HOST:PORT"),
        (["health", "--target", "http://a:1/b"], "--target: http://a:1/b is a URL; give HOST:PORT, such as a:1\n"),
        (["health", "--target", "https://a:1"], "is a URL; give HOST:PORT, such as a:1, and ask for TLS"),
        (["health", "--target", "localhost"], "localhost has no port; give HOST:PORT, such as localhost:8500"),
        (["health", "--target", "[::1]"], "[::1] has no port; give HOST:PORT, such as [::1]:8500"),
        (["health", "--target", "localhost:85000"], "port 85000 of localhost:85000 is not from 1 to 65535"),
        (["health", "--ca", "no/such/file"], "--ca: no/such/file: No such file or directory"),
        (["health", "--token-file", "no/such/file"], "--token-file: no/such/file: No such file or directory\n"),
        (["health", "--token-file", str(ROOT / "LICENSE")], "/LICENSE: the token is empty, or has a character"),
        (["health", "--target", "a\udcff:1"], r"--target: 'a\udcff:1' has a character that no target has"),
        (["translate", "a", "--to", "p\udce9"], "--to: byte 2 (0xe9) is not UTF-8; convert the text to UTF-8 first\n"),
        (["translate", "a", "--bad-words", "\udcff"], "--bad-words: byte 1 (0xff) is not UTF-8; convert the text"),
        (["translate", "a", "--sequence-bias", "a\udcff=2"], "--sequence-bias: byte 2 (0xff) is not UTF-8"),
        (["encode", "a", "--prompt", "\udcff"], "--prompt: byte 1 (0xff) is not UTF-8"),
        (["classify", "a", "--model", "\udcff"], "--model: byte 1 (0xff) is not UTF-8"),
        (["reload", "--model", "\udcff"], "--model: byte 1 (0xff) is not UTF-8"),
        (["health", "--service", "\udcff"], "--service: byte 1 (0xff) is not UTF-8"),
        (["bulk", "a", "b", "--column", "\udcff"], "--column: byte 1 (0xff) is not UTF-8"),
        (["translate", "--document", "."], "--document: . ends with none of docx, "),
        (["translate", "--document", "a.md", "--timings"], "has no lines; leave --keep-going and --timings out"),
        (["health", "--ca", str(ROOT / "LICENSE")], "no certificate in it; root certificates are PEM"),
    ],
)
def test_wrong_usage_exits_2_and_says_why(command: Dragoman, argv: list[str], message: str) -> None:
    result = command(*argv)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DRAGOMAN_TARGET", "localhost", "localhost has no port; give HOST:PORT, such as localhost:8500"),
        ("DRAGOMAN_TARGET", "a:1 a:1", "a:1 is there 2 times; give every target once"),
        ("DRAGOMAN_TOKEN", "a b", "the token is empty, or has a character that none has (RFC 6750)"),
        ("DRAGOMAN_TOKEN_FILE", "no/such/file", "no/such/file: No such file or directory"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    command: Dragoman, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    assert command("health") == Result(2, "", f"dragoman health: {name}: {message}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "pt/br"], "--output: pt/br cannot be in the name of a file: say what it becomes"),
        (["--output", "letter.md"], "--output: is the document itself"),
        (["--output", "."], "--output: . is there, and is no file: write to another place"),
        (["--output", "/dev/null"], "--output: /dev/null is there, and is no file: write to another place"),
        (["--output", "no/a.md"], "--output: no is no folder: make it first, or write to another place"),
    ],
)
def test_what_a_document_cannot_become_is_refused_first(
    command: Dragoman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("letter.md").write_text("Good morning\n")
    assert command("translate", "--document", "letter.md", *words) == Result(2, "", f"dragoman translate: {message}\n")
    assert [each.name for each in tmp_path.iterdir()] == ["letter.md"]


def test_the_output_of_lines_is_no_file(command: Dragoman, file: Path) -> None:
    result = command("translate", "--file", file, "--output", "lines.txt")
    assert (result.code, result.out) == (2, "")
    assert "--output: is what a --document becomes; translations of lines go to standard output: > FILE" in result.err


def test_without_arguments_there_is_help(command: Dragoman) -> None:
    result = command()
    assert (result.code, result.out) == (2, "")
    assert result.err == command("--help").out
    for name in OWN:
        assert f"\n  {name} " in result.err


def test_at_a_terminal_there_must_be_a_text(command: Dragoman, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    message = "dragoman translate: there is no text: give TEXT, --file FILE, or standard input from a pipe or a file\n"
    assert command("translate") == Result(2, "", message)


@pytest.mark.parametrize("argv", [["--version"], *([name, "--version"] for name in OWN)], ids=lambda c: c[0])
def test_every_command_tells_the_version(command: Dragoman, argv: list[str]) -> None:
    assert command(*argv) == Result(0, f"dragoman {dragoman.__version__}\n", "")


def test_flags_may_stand_between_texts(command: Dragoman) -> None:
    assert command("translate", "a", "--num-beams", "2", "b", "--", "-5") == Result(0, "A\nB\n-5\n", "")


def test_behind_two_dashes_everything_is_a_text(command: Dragoman) -> None:
    texts = ["-yes", "--help", "--", "--num-beams"]
    assert command("translate", "a", "--", *texts) == Result(0, "A\n-YES\n--HELP\n--\n--NUM-BEAMS\n", "")
    assert command("translate", "--file", "a", "--", "-b").code == 2
