"""Transformer -> the two ONNX graphs of `models.signature`, with torch.onnx.export."""

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

from models import signature
from models.attention import plain
from models.best_tokens import best_tokens, block_size
from models.precision import AttentionKind
from models.signature import Kind
from models.transformer import Transformer

OPSET = 21

MAX_BATCH = 4096
"""Bound on the axes without a bound of their own. The exporter only needs one; nothing is allocated by it."""


@dataclass(frozen=True)
class Graphs:
    """The two graphs, their weights in memory."""

    encoder: ir.Model
    decoder: ir.Model


class EncoderGraph(nn.Module):
    """What encoder.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """See models.signature."""
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
        self_past: list[Tensor],
        cross_past: list[Tensor],
        cross_last: list[Tensor],
    ) -> list[Tensor]:
        """See models.signature."""
        logits, present = self.model.decode_step(
            ids, positions, total, source_last, source_total, self_past, cross_past, cross_last
        )
        return [*best_tokens(logits, ranks.shape[0], self.block), *present]


def trace(model: Transformer, attention: AttentionKind = "fused") -> Graphs:
    """Traces both graphs of a model on the CPU, in the precision of its weights."""
    model = model.eval()
    with plain() if attention == "plain" else nullcontext():
        return Graphs(trace_encoder(model), trace_decoder(model))


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


def trace_decoder(model: Transformer) -> ir.Model:
    """The graph of one token of each live row."""
    config, dtype = model.config, model.target_embedding.dtype
    rows, capacity, source, k = 4, 16, 6, 3
    rows_axis, capacity_axis, source_axis = (
        Dim(name, max=MAX_BATCH) for name in ("rows", "capacity", "source_capacity")
    )
    k_axis = Dim("k", max=min(signature.MAX_CANDIDATES, config.target_vocab_size))
    self_cache, cross_cache = (signature.cache_tensors(config, kind) for kind in Kind)

    def cached(length: int) -> list[Tensor]:
        # A tensor of its own for each input: one object given twice is wired as one input, and the graph is wrong.
        shape = rows, config.decoder_heads, length, config.decoder_head_dim
        return [torch.zeros(shape, dtype=dtype) for _ in self_cache]

    return _export(
        DecoderGraph(model),
        inputs={
            "ids": torch.zeros(rows, dtype=torch.int64),
            "positions": torch.arange(rows, dtype=torch.int32),
            "total": torch.tensor(rows, dtype=torch.int32),
            "source_last": torch.arange(1, rows + 1, dtype=torch.int32),
            "source_total": torch.tensor(rows + 1, dtype=torch.int32),
            "ranks": torch.arange(k),
            "self_past": cached(capacity),
            "cross_past": cached(source),
            "cross_last": [torch.zeros(rows, 1, config.width, dtype=dtype) for _ in cross_cache],
        },
        shapes={
            "ids": {0: rows_axis},
            "positions": {0: rows_axis},
            "total": {},
            "source_last": {0: rows_axis},
            "source_total": {},
            "ranks": {0: k_axis},
            "self_past": [{0: rows_axis, 2: capacity_axis} for _ in self_cache],
            "cross_past": [{0: rows_axis, 2: source_axis} for _ in cross_cache],
            "cross_last": [{0: rows_axis} for _ in cross_cache],
        },
        input_names=[
            *signature.DECODER_INPUTS,
            *(tensor.past for tensor in self_cache + cross_cache),
            *(tensor.last for tensor in cross_cache),
        ],
        output_names=[*signature.DECODER_OUTPUTS, *(tensor.present for tensor in self_cache + cross_cache)],
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
