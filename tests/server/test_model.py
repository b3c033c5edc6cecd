"""server.catalog.served_model: what a package and the settings make of a served model."""

import pytest

from engine.observer import Unobserved
from engine.runner import Runner
from models.config import ModelConfig
from models.decoding import Decoding
from models.package.derived import graphs_spec
from models.package.folder import Package
from models.package.manifest import Certificate, FileEntry, GenerationDefaults, Manifest, Origin
from models.tokenizers.sentencepiece_pair import SentencePieceSpec
from server.catalog.served_model import served_model
from server.config import ConfigError, Settings
from server.loaded import served_by
from tests.fakes import CopyDecoder
from tests.serving import ZOO

CONFIG = ModelConfig(
    source_vocab_size=100,
    target_vocab_size=100,
    width=8,
    encoder_layers=3,
    decoder_layers=2,
    encoder_heads=2,
    decoder_heads=2,
    encoder_ffn=16,
    decoder_ffn=16,
    max_positions=64,
    pad_id=99,
    end_id=0,
    decoder_start_id=99,
)

FILES = ("decoder.onnx", "encoder.onnx", "source.spm", "target.spm", "vocab.json", "weights.bin")


def package(generation: GenerationDefaults) -> Package:
    manifest = Manifest(
        name="tiny",
        model=CONFIG,
        tokenizer=SentencePieceSpec(end_id=0, unknown_id=1, hidden_ids=(0, 99)),
        source_languages=("en",),
        target_languages=("pt",),
        generation=generation,
        graphs=graphs_spec(CONFIG, "fp32"),
        files=dict.fromkeys(FILES, FileEntry(sha256="c" * 64, size_bytes=1)),
        checkpoint=Origin(name="tiny", sha256="a" * 64),
        tools={},
        certificate=Certificate(tolerance=1e-4, encoder_error=0.0, steps=(), agreements=()),
    )
    return Package(ZOO, manifest, "b" * 64)


def settings(**limits: int) -> Settings:
    return Settings(workers=1, **limits)  # type: ignore[arg-type]


def test_facts_and_defaults_are_the_packages() -> None:
    generation = GenerationDefaults(num_beams=4, max_new_tokens=50, length_penalty=0.6, early_stopping="never")
    model = served_model(package(generation), settings(), "CPUExecutionProvider")
    assert model.defaults == Decoding(4, 1, 50, 0.6, "never")
    assert (model.name, model.source_languages, model.target_languages) == ("tiny", ("en",), ("pt",))
    assert (model.width, model.encoder_layers, model.decoder_layers, model.vocabulary_size) == (8, 3, 2, 100)
    assert (model.package_sha256, model.checkpoint_sha256) == ("b" * 64, "a" * 64)
    assert (model.precision, model.execution_provider) == ("fp32", "CPUExecutionProvider")


def test_without_settings_the_limits_are_the_models() -> None:
    model = served_model(package(GenerationDefaults(max_new_tokens=64)), settings(), "cpu")
    assert (model.max_source_tokens, model.max_new_tokens, model.max_beams) == (64, 64, 16)


def test_no_search_is_wider_than_the_rows_that_memory_has_room_for() -> None:
    model = served_model(package(GenerationDefaults(max_new_tokens=64)), settings(), "cpu")
    for rows, beams in ((11, 11), (64, 16)):
        with Runner(CopyDecoder(), rows, 2, Unobserved()) as runner:
            loaded = served_by(runner, model)
        assert (loaded.workers, loaded.rows, loaded.max_beams, loaded.limits["max_beams"]) == (2, rows, beams, beams)


def test_settings_lower_the_limits_and_the_defaults_follow() -> None:
    limits = settings(max_source_tokens=20, max_new_tokens=30, max_rows=8)
    model = served_model(package(GenerationDefaults(max_new_tokens=64)), limits, "cpu")
    assert (model.max_source_tokens, model.max_new_tokens, model.max_beams) == (20, 30, 8)
    assert model.defaults.max_new_tokens == 30


@pytest.mark.parametrize("name", ["max_source_tokens", "max_new_tokens"])
def test_more_than_the_model_takes_is_refused_with_both_numbers(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 65; the model takes 64"):
        served_model(package(GenerationDefaults(max_new_tokens=64)), settings(**{name: 65}), "cpu")


def test_rows_must_do_for_the_models_own_beams() -> None:
    with pytest.raises(ConfigError, match="max_rows is 2; the model's own num_beams needs 4"):
        served_model(package(GenerationDefaults(num_beams=4, max_new_tokens=64)), settings(max_rows=2), "cpu")


def test_more_beams_than_any_server_takes_are_not_blamed_on_the_rows() -> None:
    with pytest.raises(ConfigError, match="the model's own num_beams is 20; the server takes 16"):
        served_model(package(GenerationDefaults(num_beams=20, max_new_tokens=64)), settings(max_rows=64), "cpu")


def test_the_models_own_options_must_go_together() -> None:
    generation = GenerationDefaults(num_beams=2, num_return_sequences=3, max_new_tokens=64)
    with pytest.raises(ConfigError, match="the model's own num_return_sequences is 3; it must be from 1 to 2"):
        served_model(package(generation), settings(), "cpu")


def test_what_a_model_does_not_say_is_what_the_options_default_to() -> None:
    model = served_model(package(GenerationDefaults()), settings(), "cpu")
    assert model.defaults == Decoding(1, 1, 64, 1.0, False)
