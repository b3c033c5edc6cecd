"""export.tracing.screened, engine.cpu.screened: the tokens of the full product, whatever is beside a row."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim

from engine.cpu.screened import Screened, WholeRows
from engine.decoder import Found
from engine.devices.session import CPU, open_session
from engine.logits.graph import LogitsGraph
from export.tracing.exporter import trace_module
from export.tracing.screened import LEAST_TOKENS, ScreenedOutput, why_full
from export.tracing.trace import trace_logits
from models.best_tokens import padded_size
from models.config import ModelConfig
from models.package import signature
from models.package.declared.graphs import GraphFile, Logits
from models.package.derived import graphs_spec
from models.package.graph_files import GraphFiles
from models.package.manifest import WEIGHTS
from models.package.signature import LOGITS_GRAPH
from models.transformer import Transformer
from tests.models.test_transformer import config, random_model

pytestmark = pytest.mark.timeout(600)

TOKENS, WIDTH = 4200, 48
SCORE_ATOL = 2e-3
TIE = 1e-4
"""Logits so near to each other may be ordered either way."""

Numbers = NDArray[np.float32]


class Alone(nn.Module):
    """A decoder graph that is its output layer alone."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model, self.screened = model, ScreenedOutput(model)

    def forward(self, hidden: Tensor, ranks: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = self.screened(self.model, hidden, ranks.shape[0])
        return found


@dataclass
class Layer:
    """An output layer, and what serves it."""

    model: Transformer
    file: Path
    session: ort.InferenceSession
    logits: LogitsGraph

    def look(self, x: Numbers, k: int, session: ort.InferenceSession | None = None) -> tuple[Found, Screened]:
        ids, log_probs, certain, normaliser = (session or self.session).run(None, {"hidden": x, "ranks": np.arange(k)})
        return Found(ids, log_probs), Screened(certain, normaliser, x)

    def best(self, x: Numbers, k: int) -> Found:
        """As the engine gives it."""
        found, screened = self.look(x, k)
        WholeRows(self.logits).mend(found, screened)
        return found

    def expected(self, x: Numbers) -> NDArray[np.float64]:
        """Log-probabilities in fp64 [rows, tokens]."""
        model = self.model
        weight, bias = (part.detach()[:TOKENS].double() for part in (model.output_weight, model.output_bias))
        found: NDArray[np.float64] = (torch.from_numpy(x).double() @ weight.T + bias).log_softmax(1).numpy()
        return found


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    model = random_model(shape(WIDTH, TOKENS))
    chance = torch.Generator().manual_seed(3)
    with torch.no_grad():
        model.output_weight[:TOKENS] = torch.randn(TOKENS, WIDTH, generator=chance) * torch.rand(
            TOKENS, 1, generator=chance
        )
        model.output_weight[7] = 4.0  # all of it at the end of its range, as products that saturate have it
        model.output_weight[8], model.output_weight[9] = -4.0, 0.0
        model.output_weight[10] = model.output_weight[11]
    folder = tmp_path_factory.mktemp("layer")
    declared = graphs_spec(model.config, "fp32")
    ir.save(trace_logits(model, declared), folder / LOGITS_GRAPH)
    graph = Logits(name="logits", graph=GraphFile(file=LOGITS_GRAPH, weight_bytes=0), size=padded_size(TOKENS))
    files = GraphFiles(folder, declared.model_copy(update={"logits": graph, "output_layer": "screened"}))
    (folder / WEIGHTS).touch()  # they are in the graph
    alone = trace_module(
        Alone(model),
        inputs={"hidden": torch.zeros(4, WIDTH), "ranks": torch.arange(3)},
        shapes={"hidden": {0: Dim("rows", max=4096)}, "ranks": {0: Dim("k", max=64)}},
        input_names=signature.LOGITS_INPUTS,
        output_names=(*signature.DECODER_OUTPUTS, *signature.SCREENED[:2]),
    )
    ir.save(alone, folder / "alone.onnx")
    logits = LogitsGraph(files)
    logits.load(files.contents())
    return Layer(model, folder / "alone.onnx", open_session(folder / "alone.onnx", CPU), logits)


def rows(layer: Layer) -> Numbers:
    """Of every kind: sure of a token, torn between two, flat, far beyond the range of 8 bits, and at its ends."""
    chance = np.random.default_rng(5)
    weight = layer.model.output_weight.detach().numpy()
    sure = 4 * weight[chance.integers(12, TOKENS, 40)]
    torn = np.stack([weight[a] + weight[b] * (1 + 1e-5) for a, b in chance.integers(12, TOKENS, (20, 2))]) * 3
    flat = chance.normal(size=(20, WIDTH)) * 0.1
    beyond = chance.normal(size=(20, WIDTH)) * np.geomspace(10, 1e6, 20)[:, None]
    ends = np.array([[50.0] * WIDTH, [-50.0] * WIDTH, [50.0, -50.0] * (WIDTH // 2), [0.0] * WIDTH])
    outlier = sure[:10].copy()
    outlier[:, 3] = 300
    return np.concatenate([sure, torn, flat, beyond, ends, outlier, chance.normal(size=(40, WIDTH)) * 3]).astype("f")


def assert_best(found: Found, expected: NDArray[np.float64], which: NDArray[np.bool_]) -> None:
    """The best tokens, in their order, but for ties."""
    k = found.token_ids.shape[1]
    best = -np.sort(-expected, axis=1)[:, :k]
    chosen = np.take_along_axis(expected, found.token_ids, 1)
    scale = np.maximum(1, np.abs(expected).max(1, keepdims=True))
    assert (np.abs(chosen - best) <= TIE * scale)[which].all()
    assert all(len(set(ids)) == k for ids in found.token_ids[which].tolist())


@pytest.mark.parametrize("k", [1, 2, 5, 64])
def test_the_tokens_are_those_of_the_full_product(layer: Layer, k: int) -> None:
    x = rows(layer)
    expected, found = layer.expected(x), layer.best(x, k)
    assert_best(found, expected, np.ones(len(x), np.bool_))
    chosen = np.take_along_axis(expected, found.token_ids, 1)
    rounding = 1e-5 * np.abs(expected).max(1, keepdims=True)
    assert (np.abs(found.log_probs - chosen) <= SCORE_ATOL + rounding).all()


@pytest.mark.parametrize("k", [1, 2, 5, 64])
def test_certain_is_proven(layer: Layer, k: int) -> None:
    """The screened answer alone is right wherever the graph says so; it says so of some rows, and not of all."""
    x = rows(layer)
    found, screened = layer.look(x, k)
    certain = screened.certain[:, 0]
    assert 0 < certain.sum() < len(x) or k == 64
    assert_best(found, layer.expected(x), certain)
    assert not np.isnan(screened.normaliser[certain]).any()


def test_no_bit_depends_on_batch_mates(layer: Layer) -> None:
    """Neither on how many rows there are, nor on how many tokens others want, which may make a row a whole one."""
    x = rows(layer)
    together = layer.best(x, 5)
    order = np.random.default_rng(9).permutation(len(x))
    for size in (1, 3, 17):
        for start in range(0, len(x), size):
            some = order[start : start + size]
            for k in (1, 5, 6, 31):
                found, common = layer.best(x[some], k), min(k, 5)
                assert (found.log_probs[:, :common] == together.log_probs[some, :common]).all()
                if k == 5:
                    assert (found.token_ids == together.token_ids[some]).all()


def test_seven_bits_do_not_saturate(layer: Layer) -> None:
    """With ONNX Runtime's kernels for processors without VNNI, and with those that it takes by itself."""
    x = rows(layer)
    plain = ort.InferenceSession(layer.file)
    (best, screened), (other_best, other) = layer.look(x, 5), layer.look(x, 5, plain)
    np.testing.assert_array_equal(best.token_ids, other_best.token_ids)
    np.testing.assert_array_equal(best.log_probs, other_best.log_probs)
    np.testing.assert_array_equal(screened.certain, other.certain)
    np.testing.assert_array_equal(screened.normaliser, other.normaliser)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_row_of_no_numbers_harms_no_other(layer: Layer, number: float) -> None:
    x = rows(layer)
    expected = layer.best(x, 5)
    broken = x.copy()
    broken[4, 5] = number
    found = layer.best(broken, 5)
    others = np.arange(len(x)) != 4
    assert np.isnan(found.log_probs[4, 0])
    assert (found.token_ids[others] == expected.token_ids[others]).all()
    assert (found.log_probs[others] == expected.log_probs[others]).all()


def test_rows_are_counted(layer: Layer) -> None:
    x, whole = rows(layer), WholeRows(layer.logits)
    found, screened = layer.look(x, 5)
    whole.mend(found, screened)
    counters = whole.counters()
    assert (counters.rows, counters.whole_rows) == (len(x), (~screened.certain).sum())


def shape(width: int, tokens: int) -> ModelConfig:
    return config(width=width, encoder_layers=1, decoder_layers=1, source_vocab_size=tokens, target_vocab_size=tokens)


def test_where_it_does_not_serve() -> None:
    large = shape(WIDTH, LEAST_TOKENS)
    assert why_full(large, "fp32", "fused", shortlist=False) is None
    assert "fp16" in (why_full(large, "fp16", "fused", shortlist=False) or "")
    assert "plain" in (why_full(large, "fp32", "plain", shortlist=False) or "")
    assert "shortlist" in (why_full(large, "fp32", "fused", shortlist=True) or "")
    small = shape(WIDTH, LEAST_TOKENS - 1)
    assert str(LEAST_TOKENS - 1) in (why_full(small, "fp32", "fused", shortlist=False) or "")
    heavy = shape(768, 43_691)
    assert why_full(shape(768, 43_690), "fp32", "fused", shortlist=False) is None
    assert "134,218,752 bytes" in (why_full(heavy, "fp32", "fused", shortlist=False) or "")
    odd = shape(24, LEAST_TOKENS)
    assert "24" in (why_full(odd, "fp32", "fused", shortlist=False) or "")
