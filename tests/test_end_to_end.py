"""`python -m server` as a process with the package of models/zoo/en-pt: through the client, and through bare stubs."""

import asyncio
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from dragoman import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    FinishReason,
    Health,
    InvalidArgument,
    NotFound,
    TextDelta,
    Translation,
    Unavailable,
    Unreachable,
)
from dragoman.errors import from_rpc
from dragoman.v1.decoding_pb2 import EARLY_STOPPING_NEVER, DecodingOptions
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest, TranslateResponse
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.tokenizer import Tokenizer
from server.config import PREFIX, Settings
from tests.checkpoints import ZOO, flores
from tests.oracles import HuggingFace, Tokens
from tests.server_process import ROOT, WAIT_S, Metrics, ServerProcess, eventually, server_command, server_process

pytestmark = pytest.mark.timeout(600)

TEXTS = [english for english, _ in flores()[200:224]]
SERVICES = ("TranslationService", "EncodingService", "ModelService")

ENDLESS = DecodingOptions(num_beams=8, length_penalty=10, early_stopping=EARLY_STOPPING_NEVER)
"""With such a prize on length, a search goes on until it has all the tokens a target can have: for seconds."""


@pytest.fixture(scope="module")
def server(zoo_package: Package) -> Iterator[ServerProcess]:
    with server_process(zoo_package.folder) as server:
        yield server
        assert server.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target) as client:
        yield client


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as channel:
        yield channel


@pytest.fixture(scope="module")
def tokenizer(zoo_package: Package) -> Tokenizer:
    return zoo_package.tokenizer()


@pytest.fixture(scope="module")
def huggingface() -> HuggingFace:
    return HuggingFace(ZOO)


def sources(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Tokens]:
    return [tuple(tokenizer.encode(text)) for text in texts]


# Translations


@pytest.mark.parametrize("num_beams", [1, 4])
def test_many_contents_are_translated_in_order(
    num_beams: int, client: Client, tokenizer: Tokenizer, huggingface: HuggingFace
) -> None:
    decoding = Decoding(num_beams, 1, 512, 1.0, False)
    found = client.translate(TEXTS, num_beams=num_beams)
    encoded = sources(tokenizer, TEXTS)
    for source, translation, [(tokens, score)] in zip(
        encoded, found, huggingface.generate(encoded, decoding), strict=True
    ):
        assert translation.text == tokenizer.decode(tokens)
        assert translation.score == pytest.approx(score, abs=1e-4)
        assert (translation.source_tokens, translation.tokens) == (len(source), len(tokens))
        assert translation.finish_reason is FinishReason.END_TOKEN
        check_timings(translation)


def check_timings(translation: Translation) -> None:
    timings = translation.timings
    parts = timings.queue_s, timings.encode_s, timings.decode_s
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(timings.total_s, abs=1e-6)
    assert timings.steps >= translation.tokens - 1


def test_every_option_of_beam_search_arrives(client: Client) -> None:
    text = TEXTS[0]
    wide = client.translate(text, num_beams=6, num_return_sequences=5)
    assert len({hypothesis.text for hypothesis in wide.hypotheses}) > 1
    assert all(better.score >= worse.score for better, worse in pairwise(wide.hypotheses))
    assert len(wide.hypotheses) == 5
    cut = client.translate(text, max_new_tokens=5)
    assert (cut.tokens, cut.finish_reason) == (5, FinishReason.LENGTH)
    scores = [client.translate(text, num_beams=2, length_penalty=penalty).score for penalty in (0.0, 1.0, 2.0)]
    assert scores == sorted(set(scores))
    early, never = (client.translate(text, num_beams=4, early_stopping=stop).timings.steps for stop in (True, "never"))
    assert early < never


def test_options_that_name_words(client: Client, tokenizer: Tokenizer) -> None:
    text = "The weather is nice today."
    assert client.translate(text).text == "O tempo é bom hoje."
    for phrase in ("O tempo", tokenizer.encode_target("O tempo")):
        banned = client.translate(text, bad_words=[phrase], num_beams=4, num_return_sequences=4)
        assert all("O tempo" not in hypothesis.text for hypothesis in banned.hypotheses)
    prefixed = client.translate(text, target_prefix="Hoje", num_beams=2)
    assert prefixed.text.startswith("Hoje")
    assert prefixed.text != "Hoje"
    assert client.translate(text, target_prefix="Hoje", prefix_bias_beta=1e-6).text == "O tempo é bom hoje."
    assert client.translate(text, sequence_bias=[("Hoje", 30.0)]).text.startswith("Hoje")
    assert client.translate(text, max_new_tokens_ratio=0.5).finish_reason is FinishReason.LENGTH
    several = client.translate(text, do_sample=True, temperature=3.0, num_return_sequences=4, seed=3)
    assert len({hypothesis.text for hypothesis in several.hypotheses}) == 4


def test_a_stream_begins_with_its_prefix(client: Client) -> None:
    *deltas, last = client.stream_translate("The weather is nice today.", target_prefix="Hoje o tempo")
    assert isinstance(last, Translation)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.text
    assert last.text.startswith("Hoje o tempo")


def test_alternatives(client: Client) -> None:
    """What people choose from, after what they have written already."""
    text = "Where can I buy a ticket?"
    found = client.translate(text, return_alternatives=True, num_return_sequences=3, target_prefix="Onde")
    texts = [hypothesis.text for hypothesis in found.hypotheses]
    assert len({words.split()[1] for words in texts}) == 3
    assert all(words.startswith("Onde ") for words in texts)
    assert texts[0] == client.translate(text, target_prefix="Onde").text
    likely = client.translate(
        text, return_alternatives=True, num_return_sequences=16, min_alternative_expansion_prob=0.5
    )
    assert len(likely.hypotheses) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bad_words": [""]}, "bad_words[0]: the number of tokens is 0; it must be from 1 to 64"),
        ({"bad_words": ["a"] * 1001}, "bad_words: the number of phrases is 1001; it must be from 0 to 1000"),
        ({"bad_words": [[5, 10**6]]}, "bad_words[0]: a token id is 1000000; it must be from 0 to"),
        ({"suppress_tokens": [-1]}, "suppress_tokens: a token id is -1"),
        ({"sequence_bias": [("a", 1e30)]}, "sequence_bias[0]: the bias is 1e+30; it must be from -10000.0 to 10000.0"),
        ({"sequence_bias": [("a", math.nan)]}, "sequence_bias[0]: the bias is nan"),
        ({"forced_bos_token": "two words"}, "forced_bos_token: the number of tokens is 2; it must be from 0 to 1"),
        ({"target_prefix": [5] * 512}, "target_prefix: the number of tokens is 512; it must be from 0 to 511"),
        (
            {"target_prefix": [5] * 12, "max_new_tokens": 512},
            "max_new_tokens is 512; it must be from 1 to 500, which is what a prefix of 12 tokens leaves of 512",
        ),
        ({"prefix_bias_beta": 0.5}, "prefix_bias_beta is 0.5, and target_prefix is empty: send one, or no beta"),
        ({"do_sample": True, "num_beams": 2}, "do_sample is true, and num_beams is 2: send num_beams 1"),
        ({"return_alternatives": True, "num_beams": 2}, "return_alternatives is true, and num_beams is 2: send num_b"),
        ({"return_alternatives": True, "do_sample": True}, "return_alternatives is true, and do_sample is true: send"),
        (
            {"return_alternatives": True, "target_prefix": "Onde", "prefix_bias_beta": 0.5},
            "return_alternatives is true, and prefix_bias_beta is 0.5: send prefix_bias_beta 0",
        ),
        (
            {"return_alternatives": True, "num_return_sequences": 17},
            "num_return_sequences is 17; it must be from 1 to 16",
        ),
        ({"min_alternative_expansion_prob": 1.5}, "min_alternative_expansion_prob is 1.5; it must be from 0.0 to 1.0"),
        ({"num_return_sequences": 2}, "num_return_sequences is 2; it must be from 1 to 1, which is num_beams"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens is 9; it must be from 0 to 8"),
    ],
)
def test_words_that_cannot_be_are_refused(client: Client, options: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        client.translate("The weather is nice today.", **options)
    assert said in str(error.value)
    assert [violation.field.partition("[")[0] for violation in error.value.violations] == [
        f"decoding.{said.split()[0].partition('[')[0].rstrip(':')}"
    ]


def test_tokens_come_back_with_their_texts_and_log_probabilities(client: Client, tokenizer: Tokenizer) -> None:
    found = client.translate(TEXTS[:4], target_language="pt", num_beams=4, num_return_sequences=2, with_tokens=True)
    for translation in found:
        for hypothesis in translation.hypotheses:
            tokens = hypothesis.target_tokens
            assert len(tokens) == hypothesis.tokens
            assert "".join(token.text for token in tokens) == hypothesis.text
            assert tokenizer.decode([token.id for token in tokens]) == hypothesis.text
            assert sum(token.log_prob for token in tokens) / len(tokens) == pytest.approx(hypothesis.score, abs=1e-4)
            assert [token.begin for token in tokens] == sorted(token.begin for token in tokens)
    again = client.translate(TEXTS[0], target_language="pt")
    assert not again.hypotheses[0].target_tokens


def test_a_translation_that_looks_wrong_says_so_and_may_be_made_again(client: Client) -> None:
    loop = "la la la la la la la la la la la la la la la la la la la la la la la la la la la la la la"
    first = client.translate(loop, target_language="pt")
    assert first.guards
    again = client.translate(loop, target_language="pt", retry_on_guard=True)
    assert again.retried
    assert len(again.guards) <= len(first.guards)
    assert again.timings.steps > first.timings.steps
    fine = client.translate(TEXTS[0], target_language="pt", retry_on_guard=True)
    assert (fine.guards, fine.retried) == ((), False)


def test_what_is_drawn_depends_on_the_seed(client: Client) -> None:
    [first] = client.translate(TEXTS[:1], do_sample=True, temperature=1.5)
    assert first.seed is not None
    again, other = (client.translate(TEXTS[:8], do_sample=True, temperature=1.5, seed=seed) for seed in (first.seed, 1))
    assert again[0].text == first.text
    assert [one.text for one in again] != [one.text for one in other]
    assert {one.seed for one in other} == {1}
    [best] = client.translate(TEXTS[:1], seed=5)
    assert (best.text, best.seed) == (client.translate(TEXTS[:1])[0].text, None)
    with pytest.raises(InvalidArgument, match="do_sample is true, and num_beams is 4"):
        client.translate(TEXTS[:1], do_sample=True, num_beams=4)


async def test_concurrent_calls_get_what_each_gets_alone(server: ServerProcess, client: Client) -> None:
    alone = [client.translate(text, num_beams=1 + index % 5) for index, text in enumerate(TEXTS)]
    async with AsyncClient(server.target) as concurrent:
        together = await asyncio.gather(
            *(concurrent.translate(text, num_beams=1 + index % 5, no_cache=True) for index, text in enumerate(TEXTS))
        )
    assert [translation.hypotheses for translation in together] == [translation.hypotheses for translation in alone]


@pytest.mark.parametrize("num_beams", [1, 4])
def test_deltas_of_a_stream_add_up_to_the_translation(num_beams: int, client: Client) -> None:
    texts = TEXTS[:8]
    count = 0
    for text in texts:
        *events, last = client.stream_translate(text, num_beams=num_beams, no_cache=True)
        deltas = [event.text for event in events if isinstance(event, TextDelta)]
        assert isinstance(last, Translation)
        assert len(deltas) == len(events)
        assert "".join(deltas) == last.text
        assert last.hypotheses == client.translate(text, num_beams=num_beams).hypotheses
        count += len(deltas)
    assert count > 2 * len(texts)


def test_vectors_are_the_means_of_hidden_states(client: Client, tokenizer: Tokenizer, huggingface: HuggingFace) -> None:
    for source, plain, unit in zip(
        sources(tokenizer, TEXTS), client.encode(TEXTS), client.encode(TEXTS, normalize=True), strict=True
    ):
        expected = huggingface.mean_hidden_state(source)
        np.testing.assert_allclose(plain.values, expected, atol=1e-4)
        np.testing.assert_allclose(unit.values, torch.nn.functional.normalize(expected, dim=0), atol=1e-4)
        assert plain.source_tokens == unit.source_tokens == len(source)
        assert (plain.timings.decode_s, plain.timings.steps) == (0, 0)


# What the server says of itself


def test_translations_and_vectors_of_one_encoder_run_are_those_of_two(client: Client) -> None:
    both = client.translate_and_encode(TEXTS, num_beams=2, poolings=["cls", "mean"], type="int8")
    translated = client.translate(TEXTS, num_beams=2)
    encoded = list(client.stream_encode(iter(TEXTS), poolings=["cls", "mean"], type="int8"))
    assert [translation.hypotheses for translation, _ in both] == [alone.hypotheses for alone in translated]
    assert [(vector.data, vector.scales) for _, vector in both] == [(alone.data, alone.scales) for alone in encoded]


def test_models(client: Client, zoo_package: Package) -> None:
    manifest = zoo_package.manifest
    [model] = client.models()
    assert model == client.model() == client.model("en-pt")
    assert (model.name, model.source_languages, model.target_languages) == ("en-pt", ("en",), ("pt",))
    assert (model.width, model.encoder_layers, model.decoder_layers) == (256, 6, 2)
    assert (model.vocabulary_size, model.max_source_tokens, model.max_new_tokens) == (32001, 512, 512)
    assert (model.max_beams, model.default_decoding.num_beams) == (16, 1)
    assert (model.precision, model.execution_provider) == ("fp32", "CPUExecutionProvider")
    assert (model.package_sha256, model.checkpoint_sha256) == (zoo_package.sha256, manifest.checkpoint.sha256)
    with pytest.raises(NotFound):
        client.model("pt-en")


def test_health(client: Client) -> None:
    for name in ("", *(f"dragoman.v1.{service}" for service in SERVICES)):
        assert client.health(name) is Health.SERVING
    with pytest.raises(NotFound):
        client.health("dragoman.v1.NoService")


def test_reflection(channel: grpc.Channel) -> None:
    reflection = ProtoReflectionDescriptorDatabase(channel)
    names = {f"dragoman.v1.{service}" for service in SERVICES}
    assert {*names, "grpc.health.v1.Health"} <= set(reflection.get_services())
    for name in names:
        file = reflection.FindFileContainingSymbol(name)
        assert [f"{file.package}.{service.name}" for service in file.service] == [name]


def test_metrics_show_the_traffic(server: ServerProcess, client: Client) -> None:
    before = server.metrics()
    translations = client.translate(TEXTS[:3], num_beams=2, no_cache=True)
    vector = client.encode(TEXTS[3])
    with pytest.raises(InvalidArgument):
        client.translate(" ")
    steps = max(translation.timings.steps for translation in translations)
    eventually(lambda: server.metrics()("dragoman_steps_total") - before("dragoman_steps_total") >= steps)
    after = server.metrics()

    def grown(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    translate = "dragoman.v1.TranslationService/Translate"
    assert grown("dragoman_rpc_requests_total", method=translate, code="OK") == 1
    assert grown("dragoman_rpc_requests_total", method=translate, code="INVALID_ARGUMENT") == 1
    assert grown("dragoman_rpc_duration_seconds_count", method=translate) == 2
    assert grown("dragoman_refusals_total", reason="BLANK_CONTENT") == 1
    assert grown("dragoman_finished_total", model="en-pt", reason="end_token") == 3
    assert grown("dragoman_time_to_first_token_seconds_count", model="en-pt") == 3
    assert grown("dragoman_phase_duration_seconds_count", model="en-pt", phase="encode") == 4
    assert grown("dragoman_target_tokens_total", model="en-pt") == sum(each.tokens for each in translations)
    sources = vector.source_tokens + sum(each.source_tokens for each in translations)
    assert grown("dragoman_source_tokens_total", model="en-pt") == sources
    assert grown("dragoman_rows_computed_total", model="en-pt") > grown("dragoman_steps_total", model="en-pt")
    assert after("dragoman_rows_capacity", model="en-pt") == 2 * 64
    assert after("dragoman_rows_live", model="en-pt") == after("dragoman_rpc_in_flight") == 0
    assert after("dragoman_model_info", model="en-pt", provider="CPUExecutionProvider", precision="fp32") == 1
    assert after("dragoman_build_info") == 1


# Callers that leave

FULL = TranslateRequest(contents=TEXTS[:20], decoding=ENDLESS)
"""Fills three quarters of the rows of both workers with 12 of its contents: the last one is for other callers."""


def cancel(call: "grpc.Future[TranslateResponse]", channel: grpc.Channel) -> None:
    call.cancel()


def vanish(call: "grpc.Future[TranslateResponse]", channel: grpc.Channel) -> None:
    channel.close()


@pytest.mark.parametrize("leave", [cancel, vanish])
def test_rows_of_a_caller_that_leaves_are_free_at_once(
    leave: Callable[["grpc.Future[TranslateResponse]", grpc.Channel], None], server: ServerProcess, client: Client
) -> None:
    before = server.metrics()
    with grpc.insecure_channel(server.target) as channel:
        call = TranslationServiceStub(channel).Translate.future(FULL)
        eventually(lambda: server.metrics()("dragoman_rows_live") == 2 * 48)
        assert server.metrics()("dragoman_requests_waiting") == 8
        leave(call, channel)
    check_all_is_dropped(server, before, "CANCELLED")
    assert client.translate(TEXTS[0]).finish_reason is FinishReason.END_TOKEN


def test_rows_are_free_when_the_deadline_has_passed(server: ServerProcess, client: Client) -> None:
    before = server.metrics()
    # The deadline has passed, or the server has seen that the next step would end after it.
    with pytest.raises((DeadlineExceeded, Unavailable)), Client(server.target) as hasty:
        hasty.translate(
            list(FULL.contents), num_beams=8, length_penalty=10, early_stopping="never", timeout_s=2, no_cache=True
        )
    check_nothing_is_left(server, before)
    assert server.metrics()("dragoman_steps_total") > before("dragoman_steps_total")
    assert client.translate(TEXTS[0]).finish_reason is FinishReason.END_TOKEN


def check_all_is_dropped(server: ServerProcess, before: Metrics, code: str) -> None:
    """All contents of FULL, which was the only call since `before`."""
    cancelled = before("dragoman_cancellations_total") + len(FULL.contents)
    calls = before("dragoman_rpc_requests_total", code=code) + 1
    eventually(lambda: server.metrics()("dragoman_cancellations_total") == cancelled)
    eventually(lambda: server.metrics()("dragoman_rpc_requests_total", code=code) == calls)
    check_nothing_is_left(server, before)


def check_nothing_is_left(server: ServerProcess, before: Metrics) -> None:
    """Nothing was answered since `before`, and nothing runs or waits."""
    gauges = "dragoman_rows_live", "dragoman_requests_waiting", "dragoman_rpc_in_flight"
    eventually(lambda: not any(map(server.metrics(), gauges)))
    assert server.metrics()("dragoman_finished_total") == before("dragoman_finished_total")


# The end


def is_refused(stub: TranslationServiceStub) -> bool:
    """Whether a new call is told to go elsewhere: by the server, or by gRPC because it takes no more connections."""
    try:
        stub.Translate(TranslateRequest(contents=["A cat."]))
    except grpc.RpcError as error:
        refusal = from_rpc(error)
        if (
            refusal.code is grpc.StatusCode.CANCELLED
        ):  # gRPC's own, of a call that comes while the server begins to stop
            return False
        assert isinstance(refusal, Unreachable) or (isinstance(refusal, Unavailable) and refusal.reason == "DRAINING")
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_calls_finish_and_refuses_new_ones(number: signal.Signals, zoo_package: Package) -> None:
    with server_process(zoo_package.folder) as server, grpc.insecure_channel(server.target) as channel:
        stub = TranslationServiceStub(channel)
        stream = iter(stub.StreamTranslate(StreamTranslateRequest(content=TEXTS[0], decoding=ENDLESS)))
        texts = [next(stream).text_delta]
        server.process.send_signal(number)
        eventually(lambda: is_refused(stub))
        assert is_refused(stub)
        *deltas, last = stream
        texts += [delta.text_delta for delta in deltas]
        assert "".join(texts) == last.translation.hypotheses[0].text != ""
        assert last.translation.timings.steps == 511
        assert server.process.wait(WAIT_S) == 0


# Servers that do not start


def does_not_start(*arguments: object) -> str:
    """What a server says that ends with code 2."""
    command = server_command("--port", 0, "--metrics-port", 0, "--no-http", *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return done.stderr


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
def test_a_port_in_use_is_named(flag: str, server: ServerProcess, zoo_package: Package) -> None:
    port = server.port if flag == "--port" else server.metrics_port
    assert f"127.0.0.1:{port}" in does_not_start("--package", zoo_package.folder, flag, port)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("weights.bin", "missing"),
        ("weights.bin", "truncated"),
        ("decoder.onnx", "altered"),
        ("source.spm", "altered"),
        ("manifest.json", "missing"),
        ("manifest.json", "truncated"),
    ],
)
def test_a_damaged_file_of_the_package_is_named(name: str, how: str, zoo_package: Package, tmp_path: Path) -> None:
    folder = tmp_path / "en-pt"
    shutil.copytree(zoo_package.folder, folder, copy_function=os.symlink)
    file = folder / name
    data = file.read_bytes()
    file.unlink()  # the link, and not what it leads to
    middle = len(data) // 2
    if how == "truncated":
        file.write_bytes(data[:middle])
    elif how == "altered":
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    told = does_not_start("--package", folder)
    assert str(folder) in told
    assert name in told


def test_help_documents_every_setting() -> None:
    done = subprocess.run(
        server_command("--help"), cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0
    shown = " ".join(done.stdout.split())
    for name, setting in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')} " in shown
        assert f"[env: {PREFIX}{name.upper()}]" in shown
        assert " ".join((setting.description or "nothing").split()) in shown
