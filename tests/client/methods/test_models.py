"""Models and health by both clients."""

from typing import Any

import pytest

import dragoman
from dragoman import Health
from dragoman.errors import NotFound
from tests.client.clients import Call
from tests.client.fake_server import FakeServer


def test_models_carry_every_field(server: FakeServer, call: Call) -> None:
    (model,) = call(server.target, "models")
    assert call(server.target, "model") == call(server.target, "model", "en-pt") == model
    assert (model.name, model.source_languages, model.target_languages) == ("en-pt", ("en",), ("pt",))
    assert (model.max_source_tokens, model.max_new_tokens, model.max_beams) == (512, 256, 16)
    default = model.default_decoding
    assert isinstance(default, dragoman.Decoding)
    assert (default.num_beams, default.num_return_sequences, default.max_new_tokens) == (4, 1, 256)
    assert (default.length_penalty, default.early_stopping) == (0.5, "never")
    assert (model.width, model.encoder_layers, model.decoder_layers, model.vocabulary_size) == (2, 6, 1, 32001)
    assert (model.precision, model.execution_provider) == ("fp32", "CPUExecutionProvider")
    assert (model.package_sha256, model.checkpoint_sha256) == ("ab" * 32, "cd" * 32)
    assert model.tasks == ("translate", "encode")
    assert (model.state, model.workers, model.rows, model.memory_bytes) == ("serving", 2, 64, 1_070_000_000)
    prompts, offered = {"query": "query: "}, ("mean", "attention")
    own = dragoman.EncodingDefaults(("mean", "sum_sqrt"), 4, True, prompts, "query", offered)
    assert model.default_encoding == own
    assert (model.prompts, model.prompt) == ({"summarize": "summarize: "}, "summarize")
    assert (model.labels, model.labels_tokens) == (("long", "short"), True)


def test_an_unknown_model_is_not_found(server: FakeServer, call: Call) -> None:
    with pytest.raises(NotFound, match="no model fr-de") as caught:
        call(server.target, "model", "fr-de")
    assert caught.value.reason == "MODEL_NOT_FOUND"


@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        (3, TypeError, "{} is 3; it must be a str"),
        (None, TypeError, "{} is None; it must be a str"),
        (b"en-pt", TypeError, "{} is b'en-pt'; it must be a str"),
        ("\ud800", ValueError, "{} has half a character at 0"),
    ],
)
def test_what_cannot_be_a_name_is_refused_before_anybody_is_asked(
    server: FakeServer, call: Call, name: Any, error: type[Exception], told: str
) -> None:
    for method, what in (("model", "name"), ("reload", "name"), ("health", "service")):
        with pytest.raises(error, match=told.format(what)):
            call(server.target, method, name)


def test_health_of_the_server_and_of_a_service(server: FakeServer, call: Call) -> None:
    assert call(server.target, "health") is Health.SERVING
    assert call(server.target, "health", "dragoman.v1.EncodingService") is Health.NOT_SERVING
    with pytest.raises(NotFound):
        call(server.target, "health", "no.such.Service")
