"""encode, classify, score, models and health on the command line, against a real gRPC server."""

from pathlib import Path

import grpc
import pytest

from dragoman.command.output import embedding_line, labels_line, model_block
from dragoman.results.classification import Classification, Label
from dragoman.results.embedding import Embedding
from dragoman.results.translation import Timings
from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.encoding_pb2 import (
    EMBEDDING_TYPE_INT8,
    GROUPING_ENTITIES,
    POOLING_ATTENTION,
    POOLING_MAX,
    POOLING_WEIGHTED_MEAN,
    TRUNCATION_END,
    EncodeRequest,
)
from dragoman.v1.model_pb2 import EncodingDefaults, Model
from dragoman.wire import models
from tests.client.command.command_line import TIMINGS, Dragoman, Result
from tests.client.fake_server import Failure, FakeServer

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
            "timings": TIMINGS,
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
    told = {"timings": TIMINGS, "truncated": False}
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
    scores = {"targets": [target], "source_tokens": 2, "timings": TIMINGS}
    assert result.json == [scores, {"targets": []}]


def test_score_flags_are_the_options(command: Dragoman, server: FakeServer) -> None:
    flags = "--source-language en --target-language pt --model m --prompt query"
    assert command("score", *flags.split(), "a\tb\tc").code == 0
    [request] = server.requests
    [one] = request.contents
    assert (one.content, list(one.targets)) == ("a", ["b", "c"])
    asked = request.source_language_code, request.target_language_code, request.model, request.prompt
    assert asked == ("en", "pt", "m", "query")


@pytest.mark.parametrize("name", ["translate", "score"])
def test_languages_have_short_flags(command: Dragoman, server: FakeServer, name: str) -> None:
    assert command(name, "--from", "en", "--to", "pt", "a\tb").code == 0
    [request] = server.requests
    assert (request.source_language_code, request.target_language_code) == ("en", "pt")


def test_a_line_without_a_translation(command: Dragoman, file: Path) -> None:
    file.write_text("a\tb\nalone\nc\td\n")
    told = command("score", "--file", file, "--keep-going")
    assert (told.code, told.out) == (1, "-1.5\n\n-1.5\n")
    assert told.err.startswith("dragoman: line 2: there is no tab; write a text, a tab, and its translations")


def test_encode_flags_are_the_options(command: Dragoman, server: FakeServer) -> None:
    poolings = "--pooling max --pooling attention --pooling weighted_mean"
    flags = f"{poolings} --dimensions 3 --no-normalize --type int8 --truncation end --prompt query"
    assert command("encode", *flags.split(), "abc").code == 0
    [request] = server.requests
    assert isinstance(request, EncodeRequest)
    assert list(request.poolings) == [POOLING_MAX, POOLING_ATTENTION, POOLING_WEIGHTED_MEAN]
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
    for fact in (
        "en -> pt",
        "512 source tokens",
        "16 beams",
        "length_penalty 0.5",
        "early_stopping never",
        "ab" * 32,
        "by Dragoman 1.2.3",
    ):
        assert fact in result.out


def test_of_an_encoder_alone_nothing_is_said_that_it_has_not() -> None:
    encoder = Model(
        name="minilm",
        max_source_tokens=256,
        default_decoding=DecodingOptions(),
        width=384,
        encoder_layers=6,
        vocabulary_size=30522,
        default_encoding=EncodingDefaults(poolings=[POOLING_MAX], dimensions=384),
    )
    lines = model_block(models.model(encoder)).splitlines()
    told = {line[:13].strip(): line[14:] for line in lines[1:]}
    assert not {"languages", "default"} & told.keys()
    assert told["limits"] == "256 source tokens"
    assert told["vectors"] == "384 values, max"
    assert told["size"] == "width 384, 6 encoder layers, 30522 tokens"


def test_models_json_has_every_field(command: Dragoman) -> None:
    (model,) = command("models", "--json").json
    assert (model["name"], model["max_beams"], model["default_decoding"]["num_beams"]) == ("en-pt", 16, 4)
    assert len(model) == 30


def test_health_tells_by_its_exit_code(command: Dragoman) -> None:
    assert command("health") == Result(0, "SERVING\n", "")
    not_serving = ["--service", "dragoman.v1.EncodingService"]
    assert command("health", *not_serving) == Result(1, "NOT_SERVING\n", "")
    assert command("health", *not_serving, "--json").json == [
        {"service": "dragoman.v1.EncodingService", "status": "NOT_SERVING", "version": "1.2.3"}
    ]


def test_health_is_told_to_those_who_may_not_ask_for_the_version(command: Dragoman, server: FakeServer) -> None:
    server.failures.append(Failure(grpc.StatusCode.PERMISSION_DENIED))
    assert command("health", "--json").json == [{"service": "", "status": "SERVING", "version": None}]


def test_health_of_an_unknown_service(command: Dragoman) -> None:
    message = "the server has no service 'no.such'; leave --service out to ask about the whole server"
    assert command("health", "--service", "no.such") == Result(1, "", f"dragoman: {message}\n")
