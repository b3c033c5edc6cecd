"""What models.package.declared.precision says of fp16 and bf16 packages holds for the graphs."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from engine.cpu.decoder import CpuDecoder
from engine.devices.session import CPU
from export.tracing.graphs import Graphs, histogram
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.verification.compare_numbers import encoder_error, step_errors
from export.verification.tolerances import TOLERANCES
from export.weights.save import save
from models.package.declared.precision import Precision
from models.package.graph_files import GraphFiles
from models.package.signature import DECODER, ENCODER
from models.transformer import Transformer
from tests.models.test_transformer import config, random_model

LONGEST = 64
ELEMENT = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
CASTS = {"fp16": Counter(Cast=2), "bf16": Counter(Cast=1)}
"""Of the candidates' logits and of the best one's probability; of all logits."""


@dataclass(frozen=True)
class Half:
    """A model, its graphs in fp32, and in half of the bits."""

    model: Transformer
    precision: Precision
    full: Graphs
    graphs: Graphs
    files: GraphFiles

    def graph(self, name: str) -> onnx.GraphProto:
        return onnx.load(self.files.folder / name).graph


@pytest.fixture(scope="module")
def models() -> tuple[Transformer, Graphs]:
    model = random_model(config(scale_embedding=True))
    return model, trace(model)


@pytest.fixture(scope="module", params=["fp16", "bf16"])
def half(
    request: pytest.FixtureRequest, models: tuple[Transformer, Graphs], tmp_path_factory: pytest.TempPathFactory
) -> Half:
    model, full = models
    graphs = trace(variant(model, request.param, "fused"))
    folder: Path = tmp_path_factory.mktemp(request.param)
    return Half(model, request.param, full, graphs, save(graphs, folder))


def test_the_graphs_have_no_other_nodes_but_the_casts_of_scores(half: Half) -> None:
    assert histogram(half.graphs.encoder) == histogram(half.full.encoder)
    assert histogram(half.graphs.decoder) == histogram(half.full.decoder) + CASTS[half.precision]


def test_all_weights_have_the_precision(half: Half) -> None:
    for name in (ENCODER, DECODER):
        kinds = {tensor.data_type for tensor in half.graph(name).initializer}
        assert kinds == {ELEMENT[half.precision], TensorProto.INT64}


def test_layer_norms_accumulate_in_fp32(half: Half) -> None:
    norms = [node for name in (ENCODER, DECODER) for node in half.graph(name).node if "Normalization" in node.op_type]
    assert len(norms) == 2 * 2 + 2 * 3
    for node in norms:
        stash_type = {attribute.name: attribute.i for attribute in node.attribute}["stash_type"]
        assert stash_type == TensorProto.FLOAT


def test_log_probabilities_are_fp32(half: Half) -> None:
    graph = half.graph(DECODER)
    makers = {name: node for node in graph.node for name in node.output}
    log = next(node for node in graph.node if node.op_type == "Log")
    before = ["Log"]
    while before[-1] != "Cast" and log.input[0] in makers:
        log = makers[log.input[0]]
        before.append(log.op_type)
    assert before == {"fp16": ["Log", "Cast"], "bf16": ["Log", "GatherElements", "Softmax", "Cast"]}[half.precision]
    scores = next(value for value in graph.output if value.name == "log_probs")
    assert scores.type.tensor_type.elem_type == TensorProto.FLOAT


def test_cache_tensors_have_the_precision(half: Half) -> None:
    graph = half.graph(DECODER)
    cached = [value for value in [*graph.input, *graph.output] if "cross_" in value.name or "self_" in value.name]
    assert len(cached) == 2 * 8 + 4 + 1  # pasts and presents, last source tokens, the last query
    assert {value.type.tensor_type.elem_type for value in cached} == {ELEMENT[half.precision]}


def test_fp16_runs_on_the_cpu_as_near_as_it_should(half: Half) -> None:
    if half.precision == "bf16":
        with pytest.raises(Exception, match=r"NOT_IMPLEMENTED.*Could not find an implementation"):
            ort.InferenceSession(half.files.encoder, providers=[CPU.provider])
        return
    decoder = CpuDecoder(half.files, LONGEST, LONGEST)
    limit = TOLERANCES["fp16"].error
    assert TOLERANCES["fp32"].error < encoder_error(half.model, half.files, CPU) <= limit
    errors = [step.log_prob_error for step in step_errors(half.model, decoder, LONGEST, rows=3, ragged=True)]
    assert TOLERANCES["fp32"].error < max(errors) <= limit
    (memory,) = decoder.encode([[3, 4, 0]])
    assert memory.hidden().dtype == np.float32
