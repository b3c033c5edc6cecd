"""Attention as standard operators (`--attention plain`): the same inputs, outputs and answers, in place too."""

import random
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from engine.cpu.decoder import CpuDecoder
from engine.devices.session import CPU
from export.tracing.graphs import histogram
from export.tracing.trace import trace
from export.verification.compare_numbers import encoder_error, step_errors
from export.verification.compare_tokens import translate
from export.verification.tolerances import TOLERANCES
from export.weights.save import save
from models.attention.nodes import plain
from models.checkpoint import load_checkpoint
from models.package.derived import vocabulary
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from models.package.manifest import GenerationDefaults
from models.package.signature import DECODER, ENCODER
from models.transformer import Transformer
from tests.checkpoints import END
from tests.models.test_transformer import config, random_model

LONGEST = 64
GRAPHS = (ENCODER, DECODER)


@dataclass(frozen=True)
class Both:
    """A model, exported with each kind of attention."""

    model: Transformer
    graphs: dict[str, GraphFiles]

    def decoder(self, attention: str) -> CpuDecoder:
        return CpuDecoder(self.graphs[attention], LONGEST, LONGEST)

    def graph(self, attention: str, name: str) -> onnx.GraphProto:
        return onnx.load(self.graphs[attention].folder / name, load_external_data=False).graph


@pytest.fixture(scope="module")
def both(tiny_checkpoint: Path, tiny_package: Package, tmp_path_factory: pytest.TempPathFactory) -> Both:
    model = load_checkpoint(tiny_checkpoint).transformer
    folder = tmp_path_factory.mktemp("plain")
    return Both(model, {"fused": tiny_package.graphs(), "plain": save(trace(model, "plain"), folder)})


def test_all_operators_are_standard(both: Both) -> None:
    for name in GRAPHS:
        assert {node.domain for node in both.graph("plain", name).node} == {""}
        assert {node.domain for node in both.graph("fused", name).node} == {"", "com.microsoft"}


def test_inputs_and_outputs_are_those_of_fused_attention(both: Both) -> None:
    for name in GRAPHS:
        ours, theirs = (
            [(value.name, value.type) for value in [*graph.input, *graph.output]]
            for graph in (both.graph("plain", name), both.graph("fused", name))
        )
        assert ours == theirs


@pytest.mark.parametrize("attention", ["fused", "plain"])
def test_no_shape_is_computed_for_a_step(both: Both, attention: str) -> None:
    """But the length of `ranks`, and of the cache where attention has to mask what lies behind a row."""
    nodes = both.graph(attention, DECODER).node
    kinds_of = {output: node.op_type for node in nodes for output in node.output}
    joined = [[kinds_of[name] for name in node.input] for node in nodes if node.op_type == "Concat"]
    assert joined == [["Sin", "Cos"]]  # the table of positions, once
    shapes = [node for node in nodes if node.op_type == "Shape"]
    kinds = {node.input[0].split("_")[0] for node in shapes}
    assert kinds == {"fused": {"ranks"}, "plain": {"ranks", "self", "cross"}}[attention]


def test_plain_computes_what_pytorch_does_in_place(both: Both) -> None:
    """CpuDecoder binds past and present to one buffer; a row that saw another's places would be far off."""
    limit = TOLERANCES["fp32"].error
    assert encoder_error(both.model, both.graphs["plain"], CPU) <= limit
    for rows, ragged in ((1, False), (8, True)):
        errors = step_errors(both.model, both.decoder("plain"), LONGEST, rows, ragged)
        assert max(step.log_prob_error for step in errors) <= limit


def test_plain_and_fused_translate_token_for_token(both: Both) -> None:
    chance = random.Random(3)
    sources = [(*chance.choices(range(2, 200), k=chance.randint(1, 30)), END) for _ in range(24)]
    generation = GenerationDefaults(max_new_tokens=40)
    found, expected = (
        translate(vocabulary(both.model.config), generation, both.decoder(name), sources) for name in ("plain", "fused")
    )
    for num_beams, answers in expected.items():
        for ours, theirs in zip(found[num_beams], answers, strict=True):
            assert ours.token_ids == theirs.token_ids
            assert ours.score == pytest.approx(theirs.score, abs=1e-6)
    assert len(set(expected[1])) > 12


def test_plain_is_over_when_left() -> None:
    model = random_model(config(encoder_layers=1, decoder_layers=1))
    with pytest.raises(ZeroDivisionError), plain():
        raise ZeroDivisionError
    assert histogram(trace(model).decoder)["com.microsoft.GroupQueryAttention"] == 2
