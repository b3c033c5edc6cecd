"""export.tracing.lowering: graphs compute what PyTorch does, decomposed or not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn
from torch._ops import OperatorBase
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule
from torch.fx.graph import PythonCode

from export.tracing.exporter import trace_module
from export.tracing.trace import trace_decoder, trace_source_attention
from models.architectures.architecture import Architecture
from models.package.declared.precision import OutputLayer
from models.package.derived import graphs_spec
from tests.export.tracing import test_screened
from tests.models.recurrent import shapes
from tests.models.test_prefix import random_prefix
from tests.models.test_transformer import config, random_model
from tests.models.test_universal import HALTING, model_of


class Computes(nn.Module):
    """What a function does with x [rows, 6, columns, 4]."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def traced(function: Callable[[Tensor], Tensor]) -> ir.Model:
    return trace_module(
        Computes(function),
        inputs={"x": torch.zeros(5, 6, 3, 4)},
        shapes={"x": {0: Dim("rows", max=64), 2: Dim("columns", max=64)}},
        input_names=["x"],
        output_names=["y"],
    )


def written(x: Tensor) -> Tensor:
    kept = x.clone()
    kept[:, 2] = 7
    return kept


# Operators that torch.onnx knows, or this project.
@pytest.mark.parametrize(
    ("function", "operators"),
    [
        (lambda x: x.to(torch.int32), {"Cast"}),
        (lambda x: x.flatten(0, 1), {"Reshape", "Shape", "Slice", "Concat"}),
        (lambda x: x.flatten(2), {"Reshape"}),
        (lambda x: x[:, :, 0].flatten(), {"Gather", "Reshape"}),
        (lambda x: x[..., 0, :].flatten(0, 1), {"Gather", "Reshape"}),
        (lambda x: x[:, :, 0].flatten(-2, -1), {"Gather", "Reshape"}),
        (lambda x: x.unflatten(3, (2, -1)), {"Reshape"}),
        (lambda x: x[..., 0, :].unflatten(1, (3, 2)), {"Gather", "Reshape"}),
        (lambda x: x[..., 0, :].unflatten(-1, (-1, 1, 2)), {"Gather", "Reshape"}),
        (lambda x: x.unflatten(1, (3, 2)), {"Reshape", "Shape", "Slice", "Concat"}),
        (lambda x: 1 - x, {"Sub"}),
        (lambda x: 2.5 - x.to(torch.float64), {"Cast", "Sub"}),
        (lambda x: 7 - x.to(torch.int64), {"Cast", "Sub"}),
        (lambda x: torch.rsub(x, 1.5, alpha=2), {"Mul", "Sub"}),
        (lambda x: x.reshape(-1, 24).unflatten(0, (x.shape[0], -1)), {"Reshape", "Shape", "Slice", "Concat", "Gather"}),
    ],
)
def test_operators_are_translated_as_they_were_captured(
    function: Callable[[Tensor], Tensor], operators: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExportedProgram, "run_decompositions", not_wanted)
    graph = traced(function)
    check(graph, function)
    assert {node.op_type for node in graph.graph} <= operators | {"Constant", "Squeeze", "Unsqueeze"}


@pytest.mark.parametrize("function", [lambda x: x.square() + 1, lambda x: (x > 0) & (x < 1), written])
def test_others_are_decomposed_before(function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    decomposed: list[ExportedProgram] = []
    decompose = ExportedProgram.run_decompositions

    def run_decompositions(program: ExportedProgram, table: dict[OperatorBase, Callable[..., Any]]) -> ExportedProgram:
        decomposed.append(program)
        core: ExportedProgram = decompose(program, table)
        return core

    monkeypatch.setattr(ExportedProgram, "run_decompositions", run_decompositions)
    check(traced(function), function)
    assert len(decomposed) == 1


def decoder_of(model: Architecture, output_layer: OutputLayer = "full") -> ir.Model:
    spec = graphs_spec(model.config, "fp32").model_copy(update={"output_layer": output_layer})
    return trace_decoder(model, spec)


@pytest.mark.parametrize(
    "graph",
    [
        lambda: decoder_of(random_model(config(decoder_layers=1))),
        lambda: decoder_of(random_model(test_screened.shape(test_screened.WIDTH, test_screened.TOKENS)), "screened"),
        lambda: decoder_of(random_model(config(decoder_layers=1, decoder_cell="ssru"))),
        lambda: decoder_of(model_of(HALTING)),
        lambda: decoder_of(shapes.random_model(shapes.SHAPES["gru, none (Cho)"])),
        lambda: decoder_of(shapes.random_model(shapes.SHAPES["rnn, location, fed, local (Luong)"])),
        lambda: trace_source_attention(random_prefix(encoder_layers=1, decoder_layers=1)),
    ],
    ids=["plain", "screened", "ssru", "halting", "gru", "location", "one stack"],
)
def test_none_of_ours_is_decomposed(graph: Callable[[], ir.Model], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExportedProgram, "run_decompositions", not_wanted)
    assert graph().graph.outputs


def test_passes_over_what_was_captured_write_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written when the program is made of it, and where assertions are taken out: here, and by PyTorch."""
    written = list[GraphModule]()
    recompile = GraphModule.recompile

    def recompiled(module: GraphModule) -> PythonCode:
        written.append(module)
        return recompile(module)

    monkeypatch.setattr(GraphModule, "recompile", recompiled)
    assert traced(lambda x: x + 1).graph.outputs
    assert len(written) == 3


def not_wanted(*_: object) -> None:
    raise AssertionError("this program is decomposed")


def check(graph: ir.Model, function: Callable[[Tensor], Tensor]) -> None:
    session = ort.InferenceSession(ir.to_proto(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for rows, columns in ((1, 1), (2, 5), (9, 4)):
        x = torch.randn(rows, 6, columns, 4) * 3
        np.testing.assert_array_equal(session.run(None, {"x": x.numpy()})[0], function(x).numpy())
