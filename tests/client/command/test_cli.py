"""The command line in this process, against a real gRPC server."""

import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

import dragoman.command.progress
from dragoman.command.main import main
from dragoman.command.output import embedding_line, labels_line
from dragoman.results.classification import Classification, Label
from dragoman.results.embedding import Embedding
from dragoman.results.translation import Timings
from dragoman.v1.encoding_pb2 import (
    EMBEDDING_TYPE_INT8,
    GROUPING_ENTITIES,
    POOLING_CLS,
    POOLING_MAX,
    TRUNCATION_END,
    EncodeRequest,
)
from dragoman.v1.translation_pb2 import SEGMENTATION_SENTENCES, TEXT_FORMAT_HTML
from tests.client.command.command_line import Dragoman, Result, Terminal
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
    "timings": {"queue_s": 0.001, "encode_s": 0.002, "decode_s": 0.03, "total_s": 0.033}
    | {"steps": 3, "tokenize_s": 0.0001, "detokenize_s": 0.0002, "mean_batch_rows": 2.5},
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
    terms.write_text("New Car\tCarro Novo\n\nBob\n", encoding="utf-8")
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


# encode, score, models, health


LABELS = Label("b", 0.75), Label("c", 0.25)


def test_encode_writes_the_values(command: Dragoman, file: Path) -> None:
    file.write_text("abc\n\na\n")
    assert command("encode", "--file", file) == Result(0, "3 0.5\n\n1 0.5\n", "")
    assert command("encode", "--normalize", "abc").out == "1.5 0.25\n"


def test_encode_json_has_every_field(command: Dragoman) -> None:
    result = command("encode", "--json", "abc", " ")
    assert result.json == [
        {
            "values": [3.0, 0.5],
            "source_tokens": 2,
            "timings": TRANSLATION["timings"],
            "shape": [2],
            "truncated": False,
            "data": "",
            "scales": [],
        },
        {"values": []},
    ]


def test_classify_writes_the_labels(command: Dragoman, server: FakeServer) -> None:
    assert command("classify", "abc", " ", "a") == Result(0, '"abc" long 75.0%\n\n"a" long 75.0%\n', "")
    assert (
        command(
            "classify", *["--grouping", "entities", "--most-labels", "1", "--truncation", "end", "--model", "m"], "a"
        ).code
        == 0
    )
    sent = server.requests[-1]
    assert (sent.grouping, sent.most_labels, sent.truncation, sent.model) == (GROUPING_ENTITIES, 1, TRUNCATION_END, "m")
    long = [{"name": "long", "probability": 0.75}]
    found = {"labels": long, "spans": [{"begin": 0, "end": 1, "labels": long}], "source_tokens": 2}
    told = {"timings": TRANSLATION["timings"], "truncated": False}
    assert command("classify", "--json", "a", " ").json == [found | told, {"labels": [], "spans": []}]
    assert labels_line("a", Classification(LABELS, (), 2, Timings(0, 0, 0, 0, 0, 0, 0, 0), False)) == "b 75.0%\tc 25.0%"


def test_score_writes_a_number_for_every_translation(command: Dragoman, file: Path) -> None:
    file.write_text("text\tabc\ta\n\nother\t\n")
    assert command("score", "--file", file) == Result(0, "-3.5\t-1.5\n\n-0.5\n", "")
    told = command("score", "--tokens", "text\tab\ta")
    assert told == Result(0, "-2.5\t-1.5\n", '"ab" 13.5% "" 60.7%\n"a" 36.8% "" 60.7%\n')


def test_score_json_has_every_field(command: Dragoman) -> None:
    result = command("score", "--json", "text\ta", " ")
    tokens = [
        {"id": 7, "text": "a", "begin": 0, "log_prob": -1.0},
        {"id": 0, "text": "", "begin": 1, "log_prob": -0.5},
    ]
    target = {"text": "a", "log_prob": -1.5, "score": -0.75, "tokens": 2, "target_tokens": tokens}
    scores = {"targets": [target], "source_tokens": 2, "timings": TRANSLATION["timings"]}
    assert result.json == [scores, {"targets": []}]


def test_score_flags_are_the_options(command: Dragoman, server: FakeServer) -> None:
    flags = "--source-language en --target-language pt --model m --prompt query"
    assert command("score", *flags.split(), "a\tb\tc").code == 0
    [request] = server.requests
    [one] = request.contents
    assert (one.content, list(one.targets)) == ("a", ["b", "c"])
    asked = request.source_language_code, request.target_language_code, request.model, request.prompt
    assert asked == ("en", "pt", "m", "query")


def test_a_line_without_a_translation(command: Dragoman, file: Path) -> None:
    file.write_text("a\tb\nalone\nc\td\n")
    told = command("score", "--file", file, "--keep-going")
    assert (told.code, told.out) == (1, "-1.5\n\n-1.5\n")
    assert told.err.startswith("dragoman: line 2: there is no tab; write a text, a tab, and its translations")


def test_encode_flags_are_the_options(command: Dragoman, server: FakeServer) -> None:
    flags = "--pooling max --pooling cls --dimensions 3 --no-normalize --type int8 --truncation end --prompt query"
    assert command("encode", *flags.split(), "abc").code == 0
    [request] = server.requests
    assert isinstance(request, EncodeRequest)
    assert list(request.poolings) == [POOLING_MAX, POOLING_CLS]
    assert (request.dimensions, request.HasField("normalize"), request.normalize) == (3, True, False)
    assert (request.type, request.truncation) == (EMBEDDING_TYPE_INT8, TRUNCATION_END)
    assert request.prompt == "query"


def test_vectors_of_tokens_are_separated_by_tabs_and_binary_ones_are_bits() -> None:
    timings = Timings(0, 0, 0, 0, 0, 0, 0, 0)
    tokens = Embedding((1.0, 0.5, 2.0, 0.25), 2, timings, (2, 2), False, b"", ())
    assert embedding_line(tokens) == "1 0.5\t2 0.25"
    bits = Embedding((), 2, timings, (2, 3), False, bytes([0b10100000, 0b01100000]), ())
    assert embedding_line(bits) == "1 0 1\t0 1 1"


def test_models_shows_what_the_server_serves(command: Dragoman) -> None:
    result = command("models")
    assert result.out.startswith("en-pt\n")
    for fact in ("en -> pt", "512 source tokens", "16 beams", "length_penalty 0.5", "early_stopping never", "ab" * 32):
        assert fact in result.out


def test_models_json_has_every_field(command: Dragoman) -> None:
    (model,) = command("models", "--json").json
    assert (model["name"], model["max_beams"], model["default_decoding"]["num_beams"]) == ("en-pt", 16, 4)
    assert len(model) == 28


def test_health_tells_by_its_exit_code(command: Dragoman) -> None:
    assert command("health") == Result(0, "SERVING\n", "")
    not_serving = ["--service", "dragoman.v1.EncodingService"]
    assert command("health", *not_serving) == Result(1, "NOT_SERVING\n", "")
    assert command("health", *not_serving, "--json").json == [
        {"service": "dragoman.v1.EncodingService", "status": "NOT_SERVING"}
    ]


def test_health_of_an_unknown_service(command: Dragoman) -> None:
    message = "the server has no service 'no.such'; leave --service out to ask about the whole server"
    assert command("health", "--service", "no.such") == Result(1, "", f"dragoman: {message}\n")


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
        assert "no server at" in command("health", "--tls").err
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
