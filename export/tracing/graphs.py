"""The graphs of a package while export has them in memory."""

from collections import Counter
from dataclasses import dataclass, replace

import onnx_ir as ir

from models.package.declared.attention import TargetAttention
from models.package.declared.graphs import GraphFile, GraphsSpec, NativeGraphs, NativeStep, Scoring
from models.package.signature import (
    DECODER,
    DEVICE_DECODER,
    DEVICE_ENCODER,
    ENCODER,
    LOG_PROBS_GRAPH,
    LOGITS_GRAPH,
    NATIVE_DECODER,
    NATIVE_ENCODER,
    NATIVE_NAMED,
    OUTPUT,
    PACKED_ENCODER,
    SOURCE_ATTENTION,
    TARGET,
)


@dataclass(frozen=True)
class NativeModels:
    """Graphs of our own operators."""

    spec: NativeGraphs
    encoder: ir.Model
    decoder: ir.Model
    logits: ir.Model
    """See `models.package.declared.graphs.Logits`."""
    named: ir.Model

    @property
    def models(self) -> dict[str, ir.Model]:
        """Those of our operators, by the names of their files."""
        return {NATIVE_ENCODER: self.encoder, NATIVE_DECODER: self.decoder, NATIVE_NAMED: self.named}


@dataclass(frozen=True)
class ScoringModels:
    """Graphs that look at given targets."""

    target: ir.Model
    log_probs: ir.Model
    attention: TargetAttention
    """Which outputs of `target` tell where tokens look."""

    @property
    def models(self) -> dict[str, ir.Model]:
        """All of them, by the names of their files."""
        return {TARGET: self.target, LOG_PROBS_GRAPH: self.log_probs}

    def declared(self, spec: GraphsSpec) -> GraphsSpec:
        """What an engine must know of them, too."""
        files = {name: GraphFile(file=name, weight_bytes=weight_bytes(it)) for name, it in self.models.items()}
        scoring = Scoring(target=files[TARGET], log_probs=files[LOG_PROBS_GRAPH], attention=self.attention)
        return spec.model_copy(update={"scoring": scoring})


@dataclass(frozen=True)
class EncoderGraphs:
    """Those of a model that is an encoder alone."""

    spec: GraphsSpec
    encoder: ir.Model
    packed_encoder: ir.Model
    native: ir.Model | None = None

    def with_native(self, native: NativeGraphs, encoder: ir.Model) -> "EncoderGraphs":
        """With the graph of our own operators besides."""
        return replace(self, spec=self.spec.model_copy(update={"native": native}), native=encoder)

    @property
    def models(self) -> dict[str, ir.Model]:
        """All of them, by the names of their files."""
        native = {} if self.native is None else {NATIVE_ENCODER: self.native}
        return {ENCODER: self.encoder, PACKED_ENCODER: self.packed_encoder, **native}


@dataclass(frozen=True)
class Graphs:
    """The graphs, their weights in memory, and what an engine must know of them."""

    spec: GraphsSpec
    encoder: ir.Model
    decoder: ir.Model
    scoring: ScoringModels | None = None
    """Where they are wanted."""
    source_attention: ir.Model | None = None
    """The same."""
    output: ir.Model | None = None
    """With a shortlist only."""
    logits: ir.Model | None = None
    """Beside a screened decoder only."""
    native: NativeModels | None = None
    native_step: ir.Model | None = None
    device_step: ir.Model | None = None
    device_encoder: ir.Model | None = None

    def with_native_step(self, spec: NativeStep, decoder: ir.Model) -> "Graphs":
        """With a decoder graph that has operators of ours besides."""
        return replace(self, spec=self.spec.model_copy(update={"native_step": spec}), native_step=decoder)

    def with_device_step(self, spec: NativeStep, decoder: ir.Model, encoder: ir.Model | None) -> "Graphs":
        """With a decoder graph of our own operators for GPUs besides, and perhaps an encoder."""
        declared = self.spec.model_copy(update={"device_step": spec})
        return replace(self, spec=declared, device_step=decoder, device_encoder=encoder)

    def with_native(self, native: NativeModels) -> "Graphs":
        """With graphs of our own operators besides."""
        assert self.spec.logits is not None
        if self.logits is not None:
            return replace(self, spec=self.spec.model_copy(update={"native": native.spec}), native=native)
        file = GraphFile(file=LOGITS_GRAPH, weight_bytes=weight_bytes(native.logits))
        logits = self.spec.logits.model_copy(update={"graph": file})
        return replace(self, spec=self.spec.model_copy(update={"native": native.spec, "logits": logits}), native=native)

    @property
    def models(self) -> dict[str, ir.Model]:
        """All of them, by the names of their files. A weight that is the beginning of another comes after it."""
        output = {} if self.output is None else {OUTPUT: self.output}
        scoring = {} if self.scoring is None else self.scoring.models
        looks = {} if self.source_attention is None else {SOURCE_ATTENTION: self.source_attention}
        models = {ENCODER: self.encoder, DECODER: self.decoder, **scoring, **looks, **output}
        if self.native is not None:
            models |= self.native.models
        if self.native_step is not None:
            models[NATIVE_DECODER] = self.native_step
        if self.device_step is not None:
            models[DEVICE_DECODER] = self.device_step
        if self.device_encoder is not None:
            models[DEVICE_ENCODER] = self.device_encoder
        logits = self.logits if self.native is None else self.logits or self.native.logits
        return models | ({} if logits is None else {LOGITS_GRAPH: logits})


def weight_bytes(graph: ir.Model) -> int:
    """What the weights of a graph take in memory."""
    constants = (value.const_value for value in graph.graph.initializers.values())
    return sum(constant.nbytes for constant in constants if constant is not None)


def histogram(model: ir.Model) -> Counter[str]:
    """How many nodes of each operator a graph has."""
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph)
