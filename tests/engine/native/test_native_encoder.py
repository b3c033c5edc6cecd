"""engine.native.alone and export.quantization.encoders: an encoder alone in 8 bits, against PyTorch in the same."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from queue import Queue

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from engine.cpu.encoder import CpuEncoder
from engine.devices.session import CPU, Device, DeviceError
from engine.errors import KernelsRefused
from engine.host.encoded import EncodedText
from engine.loading.load import Kernels, Limits, Loadable, load, open_decoder
from engine.loading.probes import check_vectors, mean
from engine.native.alone import NativeEncoder
from engine.request import Encode, Encoded
from export.native.graphs import native_encoder_graphs
from export.quantization.encoders.encoder import LEAST_COSINE, QuantizedEncoder, quantize_encoder
from export.quantization.model import native_model
from export.quantization.texts import Calibration
from export.tracing.trace import trace_encoders
from export.weights.save import save
from kernels.library import Library
from models.encoding import Encoding
from models.layers import EncoderLayer
from models.package.declared.graphs import VectorProbe
from models.package.graph_files import GraphFiles
from models.package.manifest import GenerationDefaults
from models.transformer import Transformer
from tests.fakes import WAIT_S
from tests.models.encoders import CONFIG, random_encoder

SHAPE = CONFIG.model_copy(update={"width": 48, "encoder_heads": 3, "decoder_heads": 3, "relative": "shared"})
"""Heads of 16 numbers: our operators take multiples of 8."""


@dataclass(frozen=True)
class Served:
    model: Transformer
    quantized: QuantizedEncoder
    files: GraphFiles
    encoder: NativeEncoder


def random_texts(count: int, seed: int) -> list[tuple[int, ...]]:
    chance = random.Random(seed)
    return [tuple(chance.choices(range(97), k=chance.randint(1, SHAPE.max_positions))) for _ in range(count)]


def quantized(model: Transformer) -> QuantizedEncoder:
    """Measured on other texts than it is calibrated on."""
    calibration = Calibration([""] * 20, "0" * 64)
    return quantize_encoder(model, Encoding(), calibration, random_texts(20, 1), random_texts(10, 2), lambda _: None)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, library: Library) -> Served:
    model = random_encoder(SHAPE)
    found = quantized(model)
    graphs = native_encoder_graphs(trace_encoders(found.model), model, found.recipe)
    files = save(graphs, tmp_path_factory.mktemp("encoder"))
    return Served(model, found, files, NativeEncoder.open(files, SHAPE.max_positions))


@torch.no_grad()
def hidden(model: Transformer, text: Sequence[int]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = model.encode(torch.tensor([text]), torch.tensor([len(text)]))[0].numpy()
    return found


@pytest.mark.parametrize("standard", [False, True], ids=["our operators", "standard operators"])
def test_hidden_states_are_those_of_pytorch_in_the_same_8_bits(standard: bool, served: Served) -> None:
    """But where a number falls upon another integer, because sums are in another order."""
    texts = random_texts(30, 3)
    encoder = CpuEncoder(served.files, SHAPE.max_positions) if standard else served.encoder
    expected = served.quantized.model if standard else native_model(served.model, served.quantized.recipe)
    found = [text.hidden() for text in encoder.encode(texts)]
    off = [np.abs(ours - hidden(expected, text)).max() for ours, text in zip(found, texts, strict=True)]
    assert np.median(off) < 1e-3
    assert max(off) < 0.1
    assert max(np.abs(hidden(expected, text) - hidden(served.model, text)).max() for text in texts) > 1e-2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_text_alone_and_among_others_has_the_same_bits(seed: int, served: Served) -> None:
    texts = random_texts(40, seed)
    together = [text.hidden().tobytes() for text in served.encoder.encode(texts)]
    assert together == [served.encoder.encode([text])[0].hidden().tobytes() for text in texts]


def test_vectors_are_near_those_of_fp32(served: Served) -> None:
    report = served.quantized.report
    assert report is not None
    assert report.least_cosine <= report.cosine
    assert LEAST_COSINE <= report.cosine < 1
    assert {layer.layer for layer in report.layers} >= set(served.quantized.recipe)
    means = [[mean(text.hidden()) for text in served.encoder.encode(random_texts(10, 2))]]
    means.append([hidden(served.model, text).mean(0) for text in random_texts(10, 2)])
    cosines = [
        ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) for ours, theirs in zip(*means, strict=True)
    ]
    assert np.mean(cosines) == pytest.approx(report.cosine, abs=1e-4)


def test_a_layer_that_turns_vectors_far_gets_more_bits() -> None:
    """One input of its is a thousand times the others, which 8 bits of a row's scale then leave nothing of."""
    model = random_encoder(SHAPE)
    with torch.no_grad():
        layer = model.encoder[0]
        assert isinstance(layer, EncoderLayer)
        norm = layer.attention.residual.norm
        assert isinstance(norm, nn.LayerNorm)
        norm.weight[5], norm.bias[5] = 300.0, 900.0
        layer.feed_forward.up.weight[:, 5] = 0
    report = quantized(model).report
    assert report is not None
    bits = {layer.layer: layer.activation_bits for layer in report.layers}
    assert bits["encoder.0.feed_forward.up"] > 8
    assert bits["encoder.0.attention.qkv"] == 8


def test_it_serves_where_it_answers_its_probes(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = random_texts(1, 4)[0]
    [encoded] = served.encoder.encode([text])
    probe = VectorProbe(source_ids=text, numbers=tuple(mean(encoded.hidden())[:8].tolist()))
    good, bad, nonsense = (
        Loadable(
            replace(served.files, spec=served.files.spec.model_copy(update={"vector_probes": (each,)})),
            GenerationDefaults(),
        )
        for each in (
            probe,
            probe.model_copy(update={"numbers": tuple(1.2 * number for number in probe.numbers)}),
            probe.model_copy(update={"numbers": tuple(-number for number in probe.numbers)}),
        )
    )
    events = Queue[object]()
    with load(good, CPU, Limits(rows=2, workers=1), kernels="required") as runner:
        assert runner.device.kernels == served.encoder.device.kernels != ""
        runner.submit(Encode(text, events.put))
        answer = events.get(timeout=WAIT_S)
    assert isinstance(answer, Encoded)
    assert answer.vectors.data.tobytes() == encoded.hidden().mean(axis=0).tobytes()
    assert isinstance(open_decoder(good, CPU, kernels="off"), CpuEncoder)
    with pytest.raises(DeviceError, match="kernels are required: probe 0 is off by "):
        open_decoder(bad, CPU, kernels="required")
    assert isinstance(open_decoder(bad, CPU), CpuEncoder)
    assert "standard graphs: probe 0 is off by " in caplog.text
    modes: tuple[Kernels, ...] = ("auto", "off")
    for kernels in modes:
        with pytest.raises(DeviceError, match="the standard graphs do not encode as they must: probe 0 is off by "):
            open_decoder(nonsense, CPU, kernels=kernels)
    states = NativeEncoder._states

    def noisy(encoder: NativeEncoder, sources: Sequence[Sequence[int]]) -> Iterator[list[NDArray[np.float32]]]:
        for [each] in states(encoder, sources):
            yield [np.nextafter(each, np.float32(9)) if len(sources) > 1 else each]

    monkeypatch.setattr(NativeEncoder, "_states", noisy)
    with pytest.raises(KernelsRefused, match="texts have other bits packed than alone on this processor"):
        NativeEncoder.open(good.graphs, SHAPE.max_positions)
    monkeypatch.setattr(NativeEncoder, "encode", lambda *_: [EncodedText(np.full((1, 48), np.nan, np.float32))])
    with pytest.raises(KernelsRefused, match="is off by nan"):
        check_vectors(served.encoder, [probe])
    with pytest.raises(DeviceError, match="runs on the CPU only"):
        open_decoder(good, Device("cuda"))
