"""A model -> native graphs, see `models.package.declared.graphs.NativeGraphs` and `NativeStep`."""

from export.native import step
from export.native.decoder import native_decoder
from export.native.encoder import native_encoder
from export.native.logits import logits_graph, named_graph
from export.quantization.recipe import Recipe
from export.tracing.graphs import EncoderGraphs, Graphs, NativeModels, weight_bytes
from kernels.library import LibraryError, open_library
from models.architectures.architecture import Architecture
from models.architectures.recurrent.model import Recurrent
from models.package import derived, signature
from models.package.declared.graphs import GraphFile, NativeGraphs
from models.package.declared.precision import WHOLE, Precision
from models.transformer import Transformer

HEAD_DIM_MULTIPLE, LARGEST_HEAD_DIM = 8, 256
"""Attention of ours takes heads whose size is a multiple, and at most so much."""
NATIVE: dict[str, object] = {
    "shared_layers": False,
    "depth_signal": False,
    "rotary": None,
    "first_norm": True,
}
"""What is the same in all models of our operators."""
NO_RECIPE: Recipe = {}


def why_standard_only(model: Architecture, precision: Precision) -> str | None:
    """Why a package has no native graphs, if it has none: without the library, nobody could verify them."""
    if not isinstance(model, Transformer | Recurrent):
        architecture = model.config.architecture
        return (
            f"native ones are of Transformers and recurrent models, and this model's architecture is {architecture!r}"
        )
    if precision not in ("fp32", *WHOLE):
        return f"native ones compute in fp32, 16 or 8 bits, and this is {precision}"
    try:
        open_library()
    except LibraryError as error:
        return str(error)
    return obstacle(model) if isinstance(model, Transformer) else step.obstacle(model)


def with_native(graphs: Graphs, model: Architecture, recipe: Recipe = NO_RECIPE, shortlist: bool = False) -> Graphs:
    """The standard graphs of a model, and those that `why_standard_only` has nothing against. See `native_graphs`."""
    if isinstance(model, Recurrent):
        return step.with_native_step(graphs, model)
    assert isinstance(model, Transformer)
    return graphs.with_native(native_graphs(model, recipe, shortlist))


def obstacle(model: Transformer) -> str | None:
    """What our operators cannot do of a model, if there is something."""
    config = model.config
    for name, wanted in NATIVE.items():
        if (found := getattr(config, name)) != wanted:
            return f"{name} is {found!r}; native ones have {wanted!r}"
    sides = [("encoder", config.encoder_heads), ("decoder", config.decoder_heads)]
    for side, heads in sides if config.decoder_layers else sides[:1]:
        head_dim = config.head_dim or config.width // heads
        if head_dim % HEAD_DIM_MULTIPLE or head_dim > LARGEST_HEAD_DIM:
            return (
                f"the {side}'s heads have {head_dim} numbers (width {config.width}, {heads} heads); native ones have "
                f"multiples of {HEAD_DIM_MULTIPLE}, {LARGEST_HEAD_DIM} at most"
            )
    return None


def native_encoder_graphs(graphs: EncoderGraphs, model: Transformer, recipe: Recipe = NO_RECIPE) -> EncoderGraphs:
    """The graphs of an encoder alone that has no `obstacle`, with that of our own operators."""
    encoder = native_encoder(model, recipe)
    file = GraphFile(file=signature.NATIVE_ENCODER, weight_bytes=weight_bytes(encoder))
    return graphs.with_native(NativeGraphs(encoder=file, operators=signature.OPERATORS_VERSION, cache=()), encoder)


def native_graphs(model: Transformer, recipe: Recipe = NO_RECIPE, shortlist: bool = False) -> NativeModels:
    """The graphs of a model in fp32 that has no `obstacle`.

    recipe: what becomes 8 bits; with any of it, keys and values have 16
    shortlist: as a package with one needs them
    """
    cache = derived.native_tensors(model.config, "fp16" if recipe else "fp32")
    encoder, decoder = native_encoder(model, recipe), native_decoder(model, recipe, cache, shortlist)
    named = named_graph(model, recipe)
    spec = NativeGraphs(
        encoder=GraphFile(file=signature.NATIVE_ENCODER, weight_bytes=weight_bytes(encoder)),
        decoder=GraphFile(file=signature.NATIVE_DECODER, weight_bytes=weight_bytes(decoder)),
        named=GraphFile(file=signature.NATIVE_NAMED, weight_bytes=weight_bytes(named)),
        operators=signature.OPERATORS_VERSION,
        cache=cache,
    )
    return NativeModels(spec, encoder, decoder, logits_graph(model, recipe), named)
