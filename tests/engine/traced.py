"""Models with random weights and their standard graphs. A process traces each once: it takes seconds."""

from functools import cache

from export.tracing.graphs import Graphs
from export.tracing.trace import trace
from models.config import ModelConfig
from models.transformer import Transformer
from tests.models.test_transformer import random_model


@cache
def shared_model(shape: ModelConfig) -> Transformer:
    """Not to be changed."""
    return random_model(shape)


def traced(model: Transformer, shortlist: bool = False) -> Graphs:
    """Graphs of one's own, for `save` moves their weights. The model is one that stays as it is."""
    graphs = _traced(model, shortlist)
    output = None if graphs.output is None else graphs.output.clone()
    return Graphs(graphs.spec, graphs.encoder.clone(), graphs.decoder.clone(), output=output)


@cache
def _traced(model: Transformer, shortlist: bool) -> Graphs:
    return trace(model, shortlist=shortlist)
