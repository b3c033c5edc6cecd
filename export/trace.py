"""Transformer -> the ONNX graphs of `models.package.signature`, with torch.onnx.export."""

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from models.attention import plain
from models.best_tokens import best_allowed_tokens, best_tokens, block_size
from models.package import signature
from models.package.precision import AttentionKind
from models.package.signature import CacheTensor, Kind
from models.transformer import Transformer

OPSET = 21

MAX_BATCH = 4096
"""Bound on the axes without a bound of their own. The exporter only needs one; nothing is allocated by it."""
MAX_TOKENS = 1 << 20
"""The same for tokens of the vocabulary."""


@dataclass(frozen=True)
class Graphs:
    """The graphs, their weights in memory."""

    encoder: ir.Model
    decoder: ir.Model
    output: ir.Model | None = None
    """With a shortlist only."""


class EncoderGraph(nn.Module):
    """What encoder.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """See models.package.signature."""
        memory = self.model.encode(ids, lengths)
        return [memory, *self.model.cross_keys_values(memory)]


class DecoderGraph(nn.Module):
    """What decoder.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.block = block_size(model.config.target_vocab_size)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        total: Tensor,
        source_last: Tensor,
        source_total: Tensor,
        ranks: Tensor,
        target_past: list[Tensor],
        cross_past: list[Tensor],
        cross_last: list[Tensor],
        choice: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> list[Tensor]:
        """See models.package.signature. `choice`: with a shortlist, weights, biases and what is allowed."""
        hidden, present = self.model.decode_step(
            ids, positions, total, source_last, source_total, target_past, cross_past, cross_last
        )
        k = ranks.shape[0]
        if choice is None:
            return [*best_tokens(self.model.logits(hidden), k, self.block), *present]
        weight, bias, allowed = choice
        # A row more, which nobody reads: where weights are not packed in advance, ONNX Runtime multiplies one row in a
        # way of its own, and a row's last bits would depend on whether there are others.
        logits = self.model.logits(functional.pad(hidden, (0, 0, 0, 1)), (weight, bias))
        return [*best_allowed_tokens(logits, allowed, k), *present]


class OutputGraph(nn.Module):
    """What output.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """See models.package.signature."""
        return self.model.output_weight.index_select(0, ids), self.model.output_bias.index_select(0, ids)


def trace(model: Transformer, attention: AttentionKind = "fused", shortlist: bool = False) -> Graphs:
    """Traces the graphs of a model on the CPU, in the precision of its weights.

    shortlist: as a package with one needs them
    """
    model = model.eval()
    with plain() if attention == "plain" else nullcontext():
        return Graphs(trace_encoder(model), trace_decoder(model, shortlist), trace_output(model) if shortlist else None)


def trace_encoder(model: Transformer) -> ir.Model:
    """The graph of one pass over padded sources."""
    sentences, source = Dim("sentences", max=MAX_BATCH), Dim("source", max=model.config.max_positions)
    return _export(
        EncoderGraph(model),
        # No example size is 0 or 1 and no two are equal, or the exporter might take them for constants or for one axis.
        inputs={"ids": torch.zeros(3, 7, dtype=torch.int64), "lengths": torch.tensor([7, 5, 2], dtype=torch.int32)},
        shapes={"ids": {0: sentences, 1: source}, "lengths": {0: sentences}},
        input_names=signature.ENCODER_INPUTS,
        output_names=signature.encoder_outputs(model.config),
    )


def trace_decoder(model: Transformer, shortlist: bool = False) -> ir.Model:
    """The graph of one token of each live row."""
    config, dtype = model.config, model.target_embedding.dtype
    rows, capacity, source, k = 4, 16, 6, 3
    rows_axis, capacity_axis, source_axis = (
        Dim(name, max=MAX_BATCH) for name in ("rows", "capacity", "source_capacity")
    )
    most = min(signature.MAX_CANDIDATES, config.target_vocab_size)
    k_axis = Dim("k", max=most)
    places_axis, tokens_axis = (Dim(name, min=most, max=MAX_TOKENS) for name in ("places", "tokens"))
    target_cache, cross_cache = signature.target_tensors(config), signature.cache_tensors(config, Kind.CROSS)
    past = {
        Kind.SELF: ((rows, config.decoder_heads, capacity, config.decoder_head_dim), {0: rows_axis, 2: capacity_axis}),
        Kind.CROSS: ((rows, config.decoder_heads, source, config.decoder_head_dim), {0: rows_axis, 2: source_axis}),
        Kind.STATE: ((rows, config.width), {0: rows_axis}),
    }

    def zeros(tensors: list[CacheTensor]) -> list[Tensor]:
        # A tensor of its own for each input: one object given twice is wired as one input, and the graph is wrong.
        return [torch.zeros(past[tensor.kind][0], dtype=dtype) for tensor in tensors]

    def axes(tensors: list[CacheTensor]) -> list[dict[int, Dim]]:
        return [past[tensor.kind][1] for tensor in tensors]

    inputs: dict[str, object] = {
        "ids": torch.zeros(rows, dtype=torch.int64),
        "positions": torch.arange(rows, dtype=torch.int32),
        "total": torch.tensor(rows, dtype=torch.int32),
        "source_last": torch.arange(1, rows + 1, dtype=torch.int32),
        "source_total": torch.tensor(rows + 1, dtype=torch.int32),
        "ranks": torch.arange(k),
        "target_past": zeros(target_cache),
        "cross_past": zeros(cross_cache),
        "cross_last": [torch.zeros(rows, 1, config.width, dtype=dtype) for _ in cross_cache],
    }
    shapes: dict[str, object] = {
        "ids": {0: rows_axis},
        "positions": {0: rows_axis},
        "total": {},
        "source_last": {0: rows_axis},
        "source_total": {},
        "ranks": {0: k_axis},
        "target_past": axes(target_cache),
        "cross_past": axes(cross_cache),
        "cross_last": [{0: rows_axis} for _ in cross_cache],
    }
    names = [
        *signature.DECODER_INPUTS,
        *(tensor.past for tensor in target_cache + cross_cache),
        *(tensor.last for tensor in cross_cache),
    ]
    if shortlist:
        tokens, places = most + 7, most + 5
        weight, bias = torch.zeros(tokens, config.width, dtype=dtype), torch.zeros(tokens, dtype=dtype)
        inputs["choice"] = weight, bias, torch.zeros(rows, places, dtype=torch.int64)
        shapes["choice"] = {0: tokens_axis}, {0: tokens_axis}, {0: rows_axis, 1: places_axis}
        names += [*signature.OUTPUT_ROWS, signature.ALLOWED]
    outputs = [*signature.DECODER_OUTPUTS, *(tensor.present for tensor in target_cache + cross_cache)]
    return _export(DecoderGraph(model), inputs, shapes, names, outputs)


def trace_output(model: Transformer) -> ir.Model:
    """The graph of rows of the output layer."""
    return _export(
        OutputGraph(model),
        inputs={"ids": torch.arange(3)},
        shapes={"ids": {0: Dim("tokens", max=MAX_TOKENS)}},
        input_names=signature.OUTPUT_INPUTS,
        output_names=signature.OUTPUT_ROWS,
    )


def histogram(model: ir.Model) -> Counter[str]:
    """How many nodes of each operator a graph has."""
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph)


def _export(
    module: nn.Module,
    inputs: dict[str, object],
    shapes: dict[str, object],
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> ir.Model:
    with torch.no_grad(), _known_noise_silenced():
        program = torch.onnx.export(
            module.eval(),
            kwargs=inputs,
            dynamic_shapes=shapes,
            input_names=list(input_names),
            output_names=list(output_names),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    _strip(program.model)
    return program.model


def _strip(model: ir.Model) -> None:
    """Drops what the exporter writes beside the graph.

    Every node carries a Python stack trace; every inner value carries a symbolic shape, with which ONNX Runtime's
    memory planner makes a slightly slower plan than without.
    """
    ClearMetadataAndDocStringPass()(model)
    for node in model.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = value.type = None


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
