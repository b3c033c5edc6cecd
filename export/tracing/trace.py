"""A model -> the ONNX graphs of `models.package.signature`."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import get_args

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from export.quantization.model import QuantizedTransformer
from export.tracing.exporter import trace_module
from export.tracing.graphs import EncoderGraphs, Graphs, ScoringModels, weight_bytes
from export.tracing.modules import DecoderGraph, EncoderGraph, OutputGraph, PackedEncoderGraph
from export.tracing.scoring import LogProbsGraph, SourceAttentionGraph, StackAttentionGraph, TargetGraph
from export.tracing.screened import LogitsGraph, screenable
from export.tracing.variant import PRECISIONS
from models.architectures.architecture import Architecture
from models.architectures.prefix.config import PrefixConfig
from models.architectures.prefix.model import Prefix
from models.architectures.recurrent.config import RecurrentConfig
from models.attention.nodes import plain
from models.best_tokens import padded_size
from models.config import ModelConfig, ModelShape
from models.package import derived, signature
from models.package.declared.attention import CrossQuery
from models.package.declared.graphs import GraphFile, GraphsSpec, Logits
from models.package.declared.precision import AttentionKind, OutputLayer, Precision
from models.package.declared.tensors import CacheTensor, Owner
from models.transformer import Transformer

MAX_BATCH = 4096
"""Bound on the axes without a bound of their own. The exporter only needs one; nothing is allocated by it."""
MAX_TOKENS = 1 << 20
"""The same for tokens of the vocabulary."""


def trace(
    model: Architecture,
    attention: AttentionKind = "fused",
    shortlist: bool = False,
    output_layer: OutputLayer = "full",
    scoring: bool = False,
) -> Graphs:
    """Traces the graphs of a model on the CPU, in the precision of its weights.

    shortlist: as a package with one needs them
    output_layer: "screened" only where `export.tracing.screened.why_full` has nothing against it
    scoring: with the graphs that look at given targets, and that which tells where tokens look, if it has some
    """
    model = model.eval()
    spec = derived.graphs_spec(model.config, _precision(model), attention, shortlist)
    spec = spec.model_copy(update={"output_layer": output_layer})
    with plain() if attention == "plain" else nullcontext():
        encoder, decoder = trace_encoder(model, spec), trace_decoder(model, spec)
        scoring_models = trace_scoring(model) if scoring and isinstance(model, Transformer) else None
        source_attention = trace_source_attention(model) if scoring else None
        output = trace_output(model) if shortlist else None
        logits = trace_logits(screenable(model), spec) if output_layer == "screened" else None
    declared = declare(model, spec, encoder, decoder, scoring_models, source_attention, output, logits)
    return Graphs(declared, encoder, decoder, scoring_models, source_attention, output, logits)


def trace_encoders(model: Transformer) -> EncoderGraphs:
    """Traces the graphs of an encoder alone on the CPU, in fp32, 16 or 8 bits."""
    model = model.eval()
    # Windows of rotary positions are biases of some layers, which nothing declares yet.
    attention = derived.encoder_attention(model.config) if model.config.rotary is None else None
    spec = derived.graphs_spec(model.config, _precision(model)).model_copy(update={"encoder_attention": attention})
    encoder, packed = trace_encoder(model, spec), trace_packed_encoder(model)
    files = {
        "encoder": GraphFile(file=signature.ENCODER, weight_bytes=weight_bytes(encoder)),
        "packed_encoder": GraphFile(file=signature.PACKED_ENCODER, weight_bytes=weight_bytes(packed)),
    }
    return EncoderGraphs(spec.model_copy(update=files), encoder, packed)


def _precision(model: Architecture) -> Precision:
    return model.precision if isinstance(model, QuantizedTransformer) else PRECISIONS[model.target_embedding.dtype]


def declare(
    model: Architecture,
    spec: GraphsSpec,
    encoder: ir.Model,
    decoder: ir.Model,
    scoring: ScoringModels | None,
    source_attention: ir.Model | None,
    output: ir.Model | None,
    logits_graph: ir.Model | None,
) -> GraphsSpec:
    """Adds what only the graphs themselves say."""
    traced = {"encoder": (spec.encoder, encoder), "decoder": (spec.decoder, decoder), "output": (spec.output, output)}
    files = {
        name: file.model_copy(update={"weight_bytes": weight_bytes(graph)})
        for name, (file, graph) in traced.items()
        if file is not None and graph is not None
    }
    file = None
    if logits_graph is not None:
        file = GraphFile(file=signature.LOGITS_GRAPH, weight_bytes=weight_bytes(logits_graph))
    logits = Logits(name=signature.LOGITS, graph=file, size=padded_size(model.config.target_vocab_size))
    looks = {"cross_query": cross_query(model.config), "cross_scores": cross_scores(model.config)}
    if source_attention is not None:
        size = weight_bytes(source_attention)
        files["source_attention"] = GraphFile(file=signature.SOURCE_ATTENTION, weight_bytes=size)
    declared = spec.model_copy(update={**files, "logits": logits, **looks})
    return declared if scoring is None else scoring.declared(declared)


def cross_query(config: ModelShape) -> CrossQuery | None:
    """What tells where rows look; None, where scores are no products of queries with keys."""
    if isinstance(config, RecurrentConfig) and not config.compares_keys:
        return None
    if isinstance(config, PrefixConfig):  # the source is where the row's own keys begin
        keys = derived.target_tensors(config, "fp32")[-2]
        return CrossQuery(name=signature.CROSS_QUERY, keys=keys.past, scale=(config.width // config.heads) ** -0.5)
    assert isinstance(config, ModelConfig | RecurrentConfig)
    keys = derived.source_tensors(config, "fp32")[-2]
    return CrossQuery(name=signature.CROSS_QUERY, keys=keys.past, scale=config.score_scale)


def cross_scores(config: ModelShape) -> str | None:
    """What tells it there."""
    added = isinstance(config, RecurrentConfig) and config.score != "none" and not config.compares_keys
    return signature.CROSS_SCORES if added else None


def trace_encoder(model: Architecture, spec: GraphsSpec) -> ir.Model:
    """The graph of one pass over padded sources."""
    told = spec.encoder_attention
    names = [*derived.encoder_outputs(spec), *(told.outputs if told else ())]
    return _trace_encoder(EncoderGraph(model, attends=told is not None), model.config.max_positions, names)


def trace_source_attention(model: Architecture) -> ir.Model | None:
    """The graph that tells where tokens of a source look and, of one stack, those of a target behind it."""
    longest = model.config.max_positions
    if isinstance(model, Transformer):
        return _trace_encoder(SourceAttentionGraph(model), longest, [signature.ATTENTION])
    if isinstance(model, Prefix):
        return _trace_encoder(StackAttentionGraph(model), 2 * longest, signature.STACK_ATTENTION_OUTPUTS)
    return None


def _trace_encoder(module: nn.Module, longest: int, output_names: Sequence[str]) -> ir.Model:
    """The graph of a module over padded sources of so many tokens at most."""
    sentences, source = Dim("sentences", max=MAX_BATCH), Dim("source", max=longest)
    return trace_module(
        module,
        # No example size is 0 or 1 and no two are equal, or the exporter might take them for constants or for one axis.
        inputs={"ids": torch.zeros(3, 7, dtype=torch.int64), "lengths": torch.tensor([7, 5, 2], dtype=torch.int32)},
        shapes={"ids": {0: sentences, 1: source}, "lengths": {0: sentences}},
        input_names=signature.ENCODER_INPUTS,
        output_names=output_names,
    )


def trace_packed_encoder(model: Transformer) -> ir.Model:
    """The graph of one pass over sources that lie one after another."""
    tokens, sentences = Dim("tokens", max=MAX_TOKENS), Dim("sentences", max=MAX_BATCH)
    lengths = torch.tensor([7, 5, 2], dtype=torch.int32)
    return trace_module(
        PackedEncoderGraph(model),
        inputs={
            "ids": torch.zeros(14, dtype=torch.int64),
            "positions": torch.zeros(14, dtype=torch.int64),
            "padded": torch.zeros(3, 7, dtype=torch.int64),
            "places": torch.zeros(14, dtype=torch.int64),
            "lengths": lengths,
        },
        shapes={
            "ids": {0: tokens},
            "positions": {0: tokens},
            "padded": {0: sentences, 1: Dim("source", max=model.config.max_positions)},
            "places": {0: tokens},
            "lengths": {0: sentences},
        },
        input_names=signature.PACKED_ENCODER_INPUTS,
        output_names=[signature.HIDDEN],
    )


def trace_decoder(model: Architecture, spec: GraphsSpec) -> ir.Model:
    """The graph of one token of each live row."""
    dtype = model.target_embedding.dtype
    rows, k, most = 4, 3, spec.most_candidates
    places = {"target": 16, "source": 6, None: 1}
    sizes = {"rows": "rows", "target": "capacity", "source": "source_capacity"}
    axes = {axis: Dim(name, max=MAX_BATCH) for axis, name in sizes.items()}
    rows_axis, k_axis = axes["rows"], Dim("k", max=most)
    places_axis, tokens_axis = (Dim(name, min=most, max=MAX_TOKENS) for name in ("places", "tokens"))
    target, source = ([tensor for tensor in spec.cache if tensor.owner == owner] for owner in get_args(Owner))

    def zeros(tensors: list[CacheTensor]) -> list[Tensor]:
        # A tensor of its own for each input: one object given twice is wired as one input, and the graph is wrong.
        return [torch.zeros(tensor.shape(rows, places[tensor.grows]), dtype=dtype) for tensor in tensors]

    def dynamic(tensors: list[CacheTensor]) -> list[dict[int, Dim]]:
        return [{i: axes[axis] for i, axis in enumerate(tensor.axes) if isinstance(axis, str)} for tensor in tensors]

    inputs: dict[str, object] = {
        "ids": torch.zeros(rows, dtype=torch.int64),
        "positions": torch.arange(rows, dtype=torch.int32),
        "total": torch.tensor(rows, dtype=torch.int32),
        "source_last": torch.arange(1, rows + 1, dtype=torch.int32),
        "source_total": torch.tensor(rows + 1, dtype=torch.int32),
        "ranks": torch.arange(k),
        "target_past": zeros(target),
    }
    shapes: dict[str, object] = {
        "ids": {0: rows_axis},
        "positions": {0: rows_axis},
        "total": {},
        "source_last": {0: rows_axis},
        "source_total": {},
        "ranks": {0: k_axis},
        "target_past": dynamic(target),
    }
    if source:
        inputs["cross_past"], shapes["cross_past"] = zeros(source), dynamic(source)
    if told := [tensor for tensor in source if tensor.last is not None]:
        inputs["cross_last"] = [torch.zeros(rows, 1, tensor.heads * tensor.head_dim, dtype=dtype) for tensor in told]
        shapes["cross_last"] = [{0: rows_axis} for _ in told]
    names = [
        *signature.DECODER_INPUTS,
        *(tensor.past for tensor in target + source),
        *(tensor.last for tensor in source if tensor.last is not None),
    ]
    if spec.output is not None:
        tokens, allowed = most + 7, most + 5
        weight, bias = torch.zeros(tokens, spec.width, dtype=dtype), torch.zeros(tokens, dtype=dtype)
        inputs["choice"] = weight, bias, torch.zeros(rows, allowed, dtype=torch.int64)
        shapes["choice"] = {0: tokens_axis}, {0: tokens_axis}, {0: rows_axis, 1: places_axis}
        names += [*signature.OUTPUT_ROWS, signature.ALLOWED]
    if spec.slots:
        inputs["slots"] = torch.arange(9)
        shapes["slots"] = {0: Dim("total", max=model.config.max_positions)}
        names.append(signature.SLOTS)
    present = [tensor.present for tensor in target + source if tensor.written]
    screened = spec.output_layer == "screened"
    rest = signature.SCREENED if screened else (signature.LOGITS,)
    query, scores = cross_query(model.config), cross_scores(model.config)
    looks = [name for name in (query.name if query else None, scores) if name]
    outputs = [*signature.DECODER_OUTPUTS, *present, *rest, *looks]
    return trace_module(DecoderGraph(model, screened), inputs, shapes, names, outputs)


def trace_logits(model: Transformer, spec: GraphsSpec) -> ir.Model:
    """The graph of whole rows, beside a screened decoder."""
    rows, k = Dim("rows", max=MAX_BATCH), Dim("k", max=spec.most_candidates)
    return trace_module(
        LogitsGraph(model),
        inputs={"hidden": torch.zeros(4, spec.width), "ranks": torch.arange(3)},
        shapes={"hidden": {0: rows}, "ranks": {0: k}},
        input_names=signature.LOGITS_INPUTS,
        output_names=signature.LOGITS_OUTPUTS,
    )


def trace_scoring(model: Transformer) -> ScoringModels:
    """The graphs that look at given targets."""
    attention = derived.target_attention(model.config)
    sources, targets, tokens = (Dim(name, max=MAX_BATCH) for name in ("sources", "targets", "tokens"))
    source, target = (Dim(name, max=model.config.max_positions) for name in ("source", "target"))
    of_targets = trace_module(
        TargetGraph(model),
        inputs={
            "hidden": torch.zeros(3, 7, model.config.width),
            "lengths": torch.tensor([7, 5, 2], dtype=torch.int32),
            "sources": torch.tensor([0, 0, 2, 1]),
            "ids": torch.zeros(4, 6, dtype=torch.int64),
        },
        shapes={
            "hidden": {0: sources, 1: source},
            "lengths": {0: sources},
            "sources": {0: targets},
            "ids": {0: targets, 1: target},
        },
        input_names=signature.TARGET_INPUTS,
        output_names=[signature.STATES, *attention.outputs],
    )
    log_probs = trace_module(
        LogProbsGraph(model),
        inputs={"hidden": torch.zeros(3, model.config.width), "wanted": torch.arange(3)},
        shapes={"hidden": {0: tokens}, "wanted": {0: tokens}},
        input_names=signature.LOG_PROBS_INPUTS,
        output_names=[signature.LOG_PROBS],
    )
    return ScoringModels(of_targets, log_probs, attention)


def trace_output(model: Architecture) -> ir.Model:
    """The graph of rows of the output layer."""
    return trace_module(
        OutputGraph(model),
        inputs={"ids": torch.arange(3)},
        shapes={"ids": {0: Dim("tokens", max=MAX_TOKENS)}},
        input_names=signature.OUTPUT_INPUTS,
        output_names=signature.OUTPUT_ROWS,
    )
