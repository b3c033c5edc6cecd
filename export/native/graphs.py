"""Transformer -> native graphs, see `models.package.graphs.NativeGraphs`."""

from export.graphs import NativeModels, weight_bytes
from export.native.decoder import native_decoder
from export.native.encoder import native_encoder
from export.quantization.recipe import Recipe
from models.package import signature
from models.package.graphs import GraphFile, NativeGraphs
from models.transformer import Transformer

HEAD_DIM_MULTIPLE = 8
"""Attention of ours takes heads whose size is a multiple of this."""
NO_RECIPE: Recipe = {}


def obstacle(model: Transformer) -> str | None:
    """Why a model cannot have native graphs, if it cannot."""
    config = model.config
    for side, heads in (("encoder", config.encoder_heads), ("decoder", config.decoder_heads)):
        if (config.width // heads) % HEAD_DIM_MULTIPLE:
            return (
                f"the {side}'s heads have {config.width // heads} numbers (width {config.width}, {heads} heads); "
                f"the operators take multiples of {HEAD_DIM_MULTIPLE}"
            )
    return None


def native_graphs(model: Transformer, recipe: Recipe = NO_RECIPE, shortlist: bool = False) -> NativeModels:
    """The graphs of a model in fp32 that has no `obstacle`.

    recipe: what becomes 8 bits; with any of it, keys and values have 16
    shortlist: as a package with one needs them
    """
    cache = signature.native_tensors(model.config, "fp16" if recipe else "fp32")
    encoder, decoder = native_encoder(model, recipe), native_decoder(model, recipe, cache, shortlist)
    spec = NativeGraphs(
        encoder=GraphFile(file=signature.NATIVE_ENCODER, weight_bytes=weight_bytes(encoder)),
        decoder=GraphFile(file=signature.NATIVE_DECODER, weight_bytes=weight_bytes(decoder)),
        operators=signature.OPERATORS_VERSION,
        cache=cache,
    )
    return NativeModels(spec, encoder, decoder)
