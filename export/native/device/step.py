"""Step and encoder of our own operators for GPUs, see `models.package.declared.graphs.GraphsSpec.device_step`."""

from export.native.device.decoder import device_decoder
from export.native.device.encoder import device_encoder
from export.tracing.graphs import Graphs, weight_bytes
from kernels.device_library import device_library
from kernels.library import LibraryError
from models.architectures.architecture import Architecture
from models.best_tokens import padded_size
from models.config import ModelConfig
from models.package import derived, signature
from models.package.declared.graphs import GraphFile, NativeStep
from models.package.declared.precision import AttentionKind, Precision
from models.transformer import Transformer

MULTIPLE, LARGEST_HEAD_DIM = 8, 256
"""Rows of ours are a multiple of 16 bytes, and attention takes heads of at most so many numbers."""
WANTED: dict[str, object] = {
    "decoder_cell": "attention",
    "norm_kind": "layer",
    "gated": False,
    "relative": "none",
    "rotary": None,
    "shared_layers": False,
    "depth_signal": False,
    "halting": False,
}
"""What is the same in all models that have such a step."""


def why_no_device_step(
    model: Architecture, precision: Precision, attention: AttentionKind, shortlist: bool
) -> str | None:
    """Why a package has none, if it has none: without the library, nobody could verify it."""
    if precision != "fp16" or attention != "fused":
        return f"steps for GPUs are of fp16 packages with fused attention, and this is {precision}, {attention}"
    if shortlist:
        return "steps for GPUs choose from the whole vocabulary, and this package has a shortlist"
    try:
        device_library()
    except LibraryError as error:
        return str(error)
    return obstacle(model)


def obstacle(model: Architecture) -> str | None:
    """What our operators for GPUs cannot do of a model, if there is something."""
    if not isinstance(model, Transformer):
        return f"steps for GPUs are of Transformers, and this model's architecture is {model.config.architecture!r}"
    config = model.config
    if not config.decoder_layers:
        return "the model is an encoder alone"
    for name, wanted in WANTED.items():
        if (found := getattr(config, name)) != wanted:
            return f"{name} is {found!r}; steps for GPUs have {wanted!r}"
    width, vocabulary = config.width, padded_size(config.target_vocab_size)
    if (heads := _heads(config, "decoder", config.decoder_heads)) is not None:
        return heads
    for name, numbers in (("width", width), ("padded vocabulary", vocabulary), ("feed-forward", config.decoder_ffn)):
        if numbers % MULTIPLE:
            return f"{name} is {numbers}; steps for GPUs have multiples of {MULTIPLE}"
    return None


def encoder_obstacle(model: Transformer) -> str | None:
    """The same of the encoder of a model that has a step."""
    if model.config.sentences > 1:
        return "sources have a second sentence with positions of its own; encoders for GPUs have one"
    return _heads(model.config, "encoder", model.config.encoder_heads)


def _heads(config: ModelConfig, side: str, heads: int) -> str | None:
    head_dim = config.inner(heads) // heads
    if head_dim % MULTIPLE == 0 and head_dim <= LARGEST_HEAD_DIM:
        return None
    return (
        f"the {side}'s heads have {head_dim} numbers (width {config.width}, {heads} heads); steps for GPUs have "
        f"multiples of {MULTIPLE}, {LARGEST_HEAD_DIM} at most"
    )


def with_device_step(graphs: Graphs, model: Architecture) -> Graphs:
    """The graphs of a model in fp16 that has no `obstacle`, with the step for GPUs, and an encoder where it can be."""
    assert isinstance(model, Transformer), "no other has none"
    cache = derived.step_tensors(model.config, graphs.spec.precision.cache)
    decoder, encoder, file = device_decoder(model, cache), None, None
    if encoder_obstacle(model) is None:
        encoder = device_encoder(model)
        file = GraphFile(file=signature.DEVICE_ENCODER, weight_bytes=weight_bytes(encoder))
    step = NativeStep(
        decoder=GraphFile(file=signature.DEVICE_DECODER, weight_bytes=weight_bytes(decoder)),
        encoder=file,
        operators=signature.DEVICE_OPERATORS_VERSION,
        cache=cache,
    )
    return graphs.with_device_step(step, decoder, encoder)
