"""Attention through the client and a server process is what transformers says by `output_attentions`."""

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from grpc import StatusCode, aio
from matplotlib.image import imread
from numpy.typing import NDArray

from dragoman import Attention, Client, Translation
from dragoman.command.heat_maps import DOTS
from dragoman.command.main import main
from dragoman.errors import DragomanError, from_rpc
from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.translation_pb2 import TranslateRequest
from export.verification.reference import TransformersModel
from models.package.folder import Package
from tests.server_process import ROOT, server_process
from tests.serving import serving

ZOO = ROOT / "models" / "zoo" / "en-pt"
TEXT = "Maria Silva flew from Lisbon to Toronto on 12 May."
BOUND = 5e-4
"""Largest difference of a weight: float16 alone makes one of 1 / 4096 out of a weight below 1."""


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with server_process(ZOO) as server:
        yield server.target
        assert server.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def client(target: str) -> Iterator[Client]:
    with Client(target) as client:
        yield client


def array(attention: Attention | None) -> NDArray[np.float16]:
    assert attention is not None
    return np.frombuffer(attention.weights, "<f2").reshape(attention.shape)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_every_head_of_every_layer(client: Client, num_beams: int) -> None:
    package = Package.open(ZOO)
    config, source = package.manifest.model, package.tokenizer().encode(TEXT)
    assert client.model().attends
    translation = client.translate(
        TEXT, num_beams=num_beams, num_return_sequences=num_beams, with_attention=True, with_tokens=True
    )
    theirs = TransformersModel(ZOO)
    for hypothesis in translation.hypotheses:
        fed = [config.decoder_start_id, *(token.id for token in hypothesis.target_tokens)]
        encoder, cross, _ = theirs.attention(source, fed[:-1])
        np.testing.assert_allclose(array(translation.source_attention), encoder, atol=BOUND, rtol=0)
        np.testing.assert_allclose(array(hypothesis.attention), cross, atol=BOUND, rtol=0)


def test_spans_say_which_tokens_its_rows_are(client: Client) -> None:
    translation = client.translate(TEXT, target_prefix="Maria", with_attention=True)
    of_source, [hypothesis] = translation.source_attention, translation.hypotheses
    assert of_source is not None and hypothesis.attention is not None
    assert len(of_source.spans) == translation.source_tokens == hypothesis.attention.shape[3]
    assert len(hypothesis.attention.spans) == hypothesis.tokens == hypothesis.attention.shape[2]
    words = [TEXT[begin:end] for begin, end in of_source.spans]
    targets = [hypothesis.text[begin:end] for begin, end in hypothesis.attention.spans]
    assert (words[0], words[-1], targets[-1]) == ("Maria", "", "") and targets[0] != "Maria"
    looked = array(hypothesis.attention)[-1].mean(0)
    assert words[looked[targets.index("Toronto")].argmax()] == "Toronto"


def test_a_stream_ends_with_it_and_nobody_else_gets_it(client: Client) -> None:
    *_, last = client.stream_translate(TEXT, with_attention=True)
    assert isinstance(last, Translation)
    assert array(last.source_attention).any() and array(last.hypotheses[0].attention).any()
    plain = client.translate(TEXT)
    assert plain.source_attention is None and plain.hypotheses[0].attention is None
    assert plain.text == last.text


def test_the_command_line_draws_it(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "where.png"
    assert main(["translate", "--target", target, "--attention", str(file), TEXT]) == 0
    told = capsys.readouterr()
    assert "Maria Silva" in told.out and told.err == ""
    height, width, _ = imread(file).shape
    assert width > 9 * DOTS and height > 8 * DOTS, "eight heads and their mean, of eight layers"
    assert main(["translate", "--target", target, "--attention", str(tmp_path / "no" / "where.png"), TEXT]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_what_would_not_fit_is_refused_before_it_is_computed(client: Client) -> None:
    long = " ".join(["word"] * 400)
    with pytest.raises(DragomanError) as error:
        client.translate(long, with_attention=True)
    assert (error.value.code, error.value.reason) == (StatusCode.RESOURCE_EXHAUSTED, "ATTENTION_TOO_LARGE")
    tokens = len(Package.open(ZOO).tokenizer().encode(long))
    assert str(2 * 8 * tokens * (6 * tokens + 2 * 512)) in str(error.value)
    assert client.translate(TEXT, max_new_tokens=2, with_attention=True).source_attention is not None


async def test_a_model_that_does_not_tell_says_so() -> None:
    async with serving() as server:
        for decoding in (DecodingOptions(with_attention=True), DecodingOptions(coverage_penalty=1)):
            request = TranslateRequest(contents=["Two dogs bark."], target_language_code="pt", decoding=decoding)
            with pytest.raises(aio.AioRpcError) as error:
                await server.translations.Translate(request)
            assert error.value.code() is StatusCode.FAILED_PRECONDITION
            assert from_rpc(error.value).reason == "OPTION_NOT_OFFERED"
