"""The command line in this process, against a real gRPC server."""

import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

import dragoman.command.progress
from dragoman.command.main import main
from dragoman.v1.translation_pb2 import SEGMENTATION_SENTENCES, TEXT_FORMAT_HTML
from tests.client.command.command_line import TIMINGS, Dragoman, Result, Terminal
from tests.client.fake_server import TOO_LONG, FakeServer, serving
from tests.client.test_client_connection import free_target

TRANSLATION = {
    "text": "HELLO WORLD",
    "score": -0.5,
    "tokens": 3,
    "finish_reason": "end_token",
    "target_tokens": [],
    "expected_utility": None,
    "alignment": None,
    "attention": None,
    "log_prob": 0.0,
    "hypotheses": [
        {
            "text": "HELLO WORLD",
            "score": -0.5,
            "tokens": 3,
            "finish_reason": "end_token",
            "target_tokens": [],
            "expected_utility": None,
            "alignment": None,
            "attention": None,
            "log_prob": 0.0,
        }
    ],
    "source_tokens": 3,
    "timings": TIMINGS,
    "reuse": "none",
    "legs": [],
    "seed": None,
    "guards": [],
    "retried": False,
    "sentences": [],
    "source_attention": None,
}


# translate


def test_each_text_gives_a_line_in_order(command: Dragoman) -> None:
    assert command("translate", "hello world", "bye") == Result(0, "HELLO WORLD\nBYE\n", "")


def test_tokens_and_what_looks_wrong_are_told_beside_the_text(command: Dragoman) -> None:
    told = '"WRONG" 77.9% "" 60.7%\nlooks wrong: copy, unknown; translated twice\n'
    assert command("translate", "--with-tokens", "--retry-on-guard", "wrong") == Result(0, "WRONG\n", told)
    [answer] = command("translate", "--with-tokens", "--json", "wrong").json
    assert answer["target_tokens"] == [
        {"id": 7, "text": "WRONG", "begin": 0, "log_prob": -0.25},
        {"id": 0, "text": "", "begin": 5, "log_prob": -0.5},
    ]
    assert (answer["guards"], answer["retried"]) == (["copy", "unknown"], False)


def test_each_line_of_a_file_gives_a_line_in_order(command: Dragoman, file: Path) -> None:
    texts = [f"text {number}" for number in range(300)]
    file.write_text("\n".join(texts))
    result = command("translate", "--file", file)
    assert result == Result(0, "".join(f"{text.upper()}\n" for text in texts), "")
    assert sorted(command.server.contents) == sorted(texts)


def test_blank_lines_stay_blank_and_are_not_sent(command: Dragoman, file: Path) -> None:
    file.write_bytes(b"one\n\n \t\r\ntwo\n\n")
    assert command("translate", "--file", file) == Result(0, "ONE\n\n\nTWO\n\n", "")
    assert sorted(command.server.contents) == ["one", "two"]
    assert command("translate", "--json", "", "x").json[0] == {"text": ""}


def test_an_empty_file_gives_nothing(command: Dragoman, file: Path) -> None:
    file.touch()
    assert command("translate", "--file", file) == Result(0, "", "")


def test_timings_go_to_standard_error_in_the_order_of_the_lines(command: Dragoman) -> None:
    result = command("translate", "--timings", "hello world", "", "rain")
    assert (result.code, result.out) == (0, "HELLO WORLD\n\nRAIN\n")
    told = (
        "tokenize 0.100 ms, queue 1.000 ms, encode 2.000 ms, decode 30.000 ms, detokenize 0.200 ms; "
        "3 steps of 2.5 rows in the mean"
    )
    assert result.err.splitlines() == [told, told]


def test_json_has_every_field(command: Dragoman) -> None:
    result = command("translate", "--json", "hello world", "maçã")
    assert result.json[0] == TRANSLATION
    assert '"text": "MAÇÃ"' in result.out


def test_several_hypotheses_are_shown_with_their_ranks_and_scores(command: Dragoman) -> None:
    options = ["--num-beams", "2", "--num-return-sequences", "2"]
    assert [h["text"] for h in command("translate", "--json", *options, "a").json[0]["hypotheses"]] == ["A", "A!"]
    assert command("translate", *options, "a", "", "b").out == "1\t-0.5\tA\n2\t-1.5\tA!\n\n1\t-0.5\tB\n2\t-1.5\tB!\n"
    assert command("translate", "--num-return-sequences", "1", "a").out == "A\n"


@pytest.mark.parametrize(
    ("flags", "sent"),
    [
        ("--n-best 2", {"num_beams": 2, "num_return_sequences": 2}),
        ("--n-best 2 --num-beams 4", {"num_beams": 4, "num_return_sequences": 2}),
        ("--n-best 2 --do-sample", {"do_sample": True, "num_return_sequences": 2}),
    ],
)
def test_so_many_best_take_as_many_beams(flags: str, sent: dict[str, int], command: Dragoman) -> None:
    assert command("translate", *flags.split(), "a").out == "1\t-0.5\tA\n2\t-1.5\tA!\n"
    (request,) = command.server.requests
    assert {field.name: value for field, value in request.decoding.ListFields()} == sent
    refused = command("translate", "--n-best", "2", "--num-return-sequences", "2", "a")
    assert refused.code == 2 and "not allowed with --num-return-sequences" in refused.err


@pytest.mark.parametrize("count", ["0", "-1"])
def test_so_many_best_are_one_at_least(count: str, command: Dragoman) -> None:
    told = f"dragoman translate: --n-best: {count} is below 1, which is the best translation alone\n"
    assert command("translate", "--n-best", count, "a") == Result(2, "", told)


def test_the_lines_of_an_argument_stay_lines(command: Dragoman) -> None:
    assert command("translate", "one\n\ntwo\n", "three").out == "ONE\n\nTWO\nTHREE\n"
    assert [line["text"] for line in command("translate", "--json", "one\ntwo").json] == ["ONE", "TWO"]
    assert sorted(command.server.contents) == sorted(["one", "two", "three", "one", "two"])
    assert command("translate", "one\ntoo long", "three").err == f"dragoman: line 2: {TOO_LONG}\n"


def test_a_line_break_in_a_translation_stays_on_its_line(command: Dragoman) -> None:
    assert command("translate", "one\rtwo", "three").out == "ONE TWO\nTHREE\n"


def test_every_option_arrives(command: Dragoman) -> None:
    flags = "--source-language en --target-language pt --model en-pt --num-beams 4 --num-return-sequences 2"
    more = "--max-new-tokens 100 --length-penalty -0.5 --early-stopping never --no-cache"
    assert command("translate", *flags.split(), *more.split(), "a").code == 0
    (request,) = command.server.requests
    assert (request.source_language_code, request.target_language_code, request.model) == ("en", "pt", "en-pt")
    assert request.no_cache
    assert {field.name: value for field, value in request.decoding.ListFields()} == {
        "num_beams": 4,
        "num_return_sequences": 2,
        "max_new_tokens": 100,
        "length_penalty": -0.5,
        "early_stopping": 3,
    }


def test_what_the_texts_are_arrives(command: Dragoman, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_bytes(b"\xef\xbb\xbfNew Car\tCarro Novo\r\n\nBob\n")  # as spreadsheets write it
    assert command("translate", "--html", "--sentences", "--glossary", terms, "a").code == 0
    [request] = command.server.requests
    assert (request.format, request.segmentation) == (TEXT_FORMAT_HTML, SEGMENTATION_SENTENCES)
    assert [(term.source, term.target) for term in request.glossary] == [("New Car", "Carro Novo"), ("Bob", "")]


def test_a_glossary_that_cannot_be_read_is_told(command: Dragoman, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    result = command("translate", "--glossary", terms, "a")
    assert (result.code, result.err.startswith(f"dragoman translate: --glossary: {terms} cannot be read: ")) == (
        2,
        True,
    )
    terms.write_text("a\tb\tc\n")
    result = command("translate", "--glossary", terms, "a")
    told = f"dragoman translate: --glossary: {terms} has a line of 3 columns; a term has 1 or 2: a\n"
    assert result == Result(2, "", told)
    terms.write_text("a\tb\na\tb\na\tc\n")
    told = f"dragoman translate: --glossary: {terms} has two translations of 'a', 'b' and 'c'; leave one out\n"
    assert command("translate", "--glossary", terms, "a") == Result(2, "", told)
    terms.write_bytes(b"a\tb\ncaf\xe9\td\n")
    told = f"{terms}: line 2: byte 4 (0xe9) is not UTF-8; convert the text to UTF-8 first\n"
    assert command("translate", "--glossary", terms, "a") == Result(2, "", f"dragoman translate: --glossary: {told}")
    terms.write_text("a\tb\nc\td\n", encoding="utf-16-le")
    told = f"{terms}: line 1: byte 2 (0x00) is in no text; if the file is UTF-16, convert it to UTF-8 first\n"
    assert command("translate", "--glossary", terms, "a") == Result(2, "", f"dragoman translate: --glossary: {told}")


def test_options_left_out_are_not_sent(command: Dragoman) -> None:
    command("translate", "a")
    assert command.server.requests[0].decoding.ListFields() == []
    assert not command.server.requests[0].no_cache


def test_no_more_requests_at_once_than_allowed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text("line\n" * 50)
    with serving(FakeServer(rendezvous=5)) as server:
        result = Dragoman(capsys, monkeypatch, server)("translate", "--file", file, "--concurrency", "5")
    assert result == Result(0, "LINE\n" * 50, "")
    assert server.most_active == 5


# Refused lines


def test_a_refused_line_ends_the_run_after_the_lines_before_it(command: Dragoman, file: Path) -> None:
    file.write_text("one\ntwo\ntoo long\nfour\n")
    assert command("translate", "--file", file) == Result(1, "ONE\nTWO\n", f"dragoman: line 3: {TOO_LONG}\n")


def test_a_refused_text_is_named(command: Dragoman) -> None:
    assert command("translate", "one", "too long").err == f"dragoman: text 2: {TOO_LONG}\n"


def test_keep_going_leaves_the_refused_lines_empty(command: Dragoman, file: Path) -> None:
    file.write_bytes(b"too long\none\n\xff\xfe\n\ntwo")
    result = command("translate", "--file", file, "--keep-going")
    assert (result.code, result.out) == (1, "\nONE\n\n\nTWO\n")
    assert result.err.splitlines() == [
        f"dragoman: line 1: {TOO_LONG}",
        "dragoman: line 3: byte 1 (0xff) is not UTF-8; convert the text to UTF-8 first",
    ]


def test_keep_going_puts_errors_into_json(command: Dragoman, file: Path) -> None:
    file.write_bytes(b"too long\n\xff\nhello world\n")
    first, second, third = command("translate", "--json", "--file", file, "--keep-going").json
    assert first == {"error": {"code": "INVALID_ARGUMENT", "reason": "SOURCE_TOO_LONG", "message": TOO_LONG}}
    assert (second["error"]["code"], second["error"]["reason"]) == ("INVALID_ARGUMENT", "INVALID_LINE")
    assert third == TRANSLATION


def test_keep_going_does_not_go_on_without_a_server(command: Dragoman, file: Path) -> None:
    file.write_text("one\ntwo\n")
    result = command("translate", "--file", file, "--keep-going", "--target", free_target(), "--concurrency", "1")
    assert (result.code, result.out) == (1, "")
    assert result.err.count("no server at") == result.err.count("\n") == 1


# Servers


def test_one_of_several_servers_may_be_down(command: Dragoman, server: FakeServer, monkeypatch: Any) -> None:
    down = free_target()
    assert command("translate", "--target", down, "--target", server.target, "hello").out == "HELLO\n"
    monkeypatch.setenv("DRAGOMAN_TARGET", f"{down} {server.target}")
    assert command("translate", "hello").out == "HELLO\n"
    result = command("translate", "--target", down, "--target", server.target, "--target", down, "hello")
    assert result.code == 2
    assert f"--target: {down} is there 2 times; give every target once" in result.err
    other = free_target()
    assert f"no server at {down} or {other} (" in command("translate", "--target", down, "--target", other, "x").err


def test_ca_trusts_an_authority_of_ones_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("127.0.0.1")
    chain = b"".join(pem.bytes() for pem in own.cert_chain_pems)
    credentials = grpc.ssl_server_credentials([(own.private_key_pem.bytes(), chain)])
    with serving(FakeServer(), credentials) as server:
        command = Dragoman(capsys, monkeypatch, server)
        assert command("translate", "--ca", tmp_path / "ca.pem", "--tls", "a") == Result(0, "A\n", "")
        assert "is signed by nobody who is trusted" in command("health", "--tls").err
        assert "no server at" in command("health").err


# Progress


def test_progress_if_asked_for(command: Dragoman, file: Path) -> None:
    file.write_text("a\nb\n")
    err = command("translate", "--file", file, "--progress").err
    assert err.startswith("2 lines, ")
    assert err.endswith(" lines/s\n")


def test_progress_on_a_terminal_for_files_only(command: Dragoman, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dragoman.command.progress, "TERMINAL_INTERVAL_S", 0.0)
    file.write_text("a\ntoo long\nb\n")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert command("translate", "--file", file, "--keep-going").out == "A\n\nB\n"
    for shown in ("\r\x1b[K1 lines, ", "\r\x1b[Kdragoman: line 2: ", "\r\x1b[K3 lines, "):
        assert shown in terminal.getvalue()
    terminal.truncate(0)
    command("translate", "a")
    assert terminal.getvalue().strip("\0") == ""


def test_no_progress_where_the_results_are_shown(
    server: FakeServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("a\n")
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["translate", "--target", server.target, "--file", str(file)]) == 0
    assert (out.getvalue(), err.getvalue()) == ("A\n", "")
