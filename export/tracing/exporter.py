"""A module -> an ONNX graph, by torch.onnx.export."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir
import torch
import torch._dynamo.config
import torch.fx._lazy_graph_module
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import nn
from torch.fx.experimental import proxy_tensor

from export.quantization.stored import store_by_outputs
from export.tracing import lowering

lowering.install()


def trace_module(
    module: nn.Module,
    inputs: dict[str, object],
    shapes: dict[str, object],
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> ir.Model:
    """The graph of a module. shapes: which axes of its inputs are dynamic."""
    # Of shapes that are symbols, keeping a result and taking it again takes longer than computing it.
    uncached = torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
    # What is captured is never run: its Python need not be written after each of several passes.
    unwritten = torch.fx._lazy_graph_module._use_lazy_graph_module(True)
    with torch.no_grad(), uncached, unwritten, _layouts_unasked(), _known_noise_silenced():
        program = torch.onnx.export(
            module.eval(),
            kwargs=inputs,
            dynamic_shapes=shapes,
            input_names=list(input_names),
            output_names=list(output_names),
            opset_version=lowering.OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    _strip(program.model)
    store_by_outputs(program.model)
    return program.model


def _strip(model: ir.Model) -> None:
    """Drops what the exporter writes beside the graph.

    Every node carries the module it comes from; every inner value carries a symbolic shape, with which ONNX Runtime's
    memory planner makes a slightly slower plan than without.
    """
    ClearMetadataAndDocStringPass()(model)
    for node in model.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = value.type = None


@contextmanager
def _layouts_unasked() -> Iterator[None]:
    """Nodes are not told how what they give lies in memory, which is asked of symbols in three orders."""
    extract = proxy_tensor._extract_tensor_metadata  # type: ignore[attr-defined]
    proxy_tensor._extract_tensor_metadata = lambda _: None  # type: ignore[attr-defined, assignment, misc]
    try:
        yield
    finally:
        proxy_tensor._extract_tensor_metadata = extract  # type: ignore[attr-defined]


@contextmanager
def _known_noise_silenced() -> Iterator[None]:
    """Keeps three messages of the exporter quiet that say nothing about our graphs."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")  # "torchvision is not installed"
    level = registration.level
    registration.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="# The axis name: .* will not be used")  # one axis, many inputs
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec.*")
            yield
    finally:
        registration.setLevel(level)
