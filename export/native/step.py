"""The native decoder of recurrent models: the standard one's trace, with operators of ours where they have one."""

from export.tracing.graphs import Graphs, weight_bytes
from export.tracing.trace import trace_decoder
from models.architectures.recurrent.model import Recurrent
from models.attention.nodes import ours
from models.package import derived, signature
from models.package.declared.graphs import GraphFile, NativeStep


def obstacle(model: Recurrent) -> str | None:
    """What our operators cannot do of a model, if there is something."""
    config = model.config
    if config.adds and config.window is None:
        return None
    return f"native ones have additive scores of the whole source, and this has score {config.score!r}" + (
        "" if config.window is None else f" and window {config.window}"
    )


def with_native_step(graphs: Graphs, model: Recurrent) -> Graphs:
    """The graphs of a model that has no `obstacle`, with the native decoder besides."""
    cache = derived.step_tensors(model.config, graphs.spec.precision.cache)
    with ours():
        decoder = trace_decoder(model, graphs.spec.model_copy(update={"cache": cache}))
    file = GraphFile(file=signature.NATIVE_DECODER, weight_bytes=weight_bytes(decoder))
    return graphs.with_native_step(
        NativeStep(decoder=file, operators=signature.OPERATORS_VERSION, cache=cache), decoder
    )
