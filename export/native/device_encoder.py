"""The encoder for GPUs: sources one after another, without padding. See `models.package.signature`."""

import onnx_ir as ir
from onnx_ir import DataType
from torch import nn

from export.native.device_layers import DeviceLayers, Sublayer
from export.native.nodes import declared, variable
from models.layers import CrossAttention, EncoderLayer, FeedForward, SelfAttention
from models.package import signature
from models.transformer import Transformer


def device_encoder(model: Transformer) -> ir.Model:
    """The graph, in the precision of the model's weights."""
    layers = DeviceLayers(model)
    dtypes = DataType.INT64, DataType.INT32, DataType.INT32, DataType.INT32
    inputs = [
        variable(name, dtype, ["tokens"]) for name, dtype in zip(signature.DEVICE_ENCODER_INPUTS, dtypes, strict=True)
    ]
    ids, positions, firsts, lengths = inputs

    def compute(x: ir.Value, sublayer: Sublayer, index: int) -> tuple[ir.Value, nn.Linear]:
        match sublayer:
            case SelfAttention():
                given = [layers.product(x, sublayer.qkv), firsts, lengths]
                attributes = {"heads": sublayer.heads, **layers.scale}
                return layers.nodes.ours("PackedAttention", given, attributes), sublayer.out
            case FeedForward():
                return layers.feed_forward(x, sublayer)
            case CrossAttention():
                raise TypeError("an encoder layer looks at nothing but its source")

    x = layers.embed("source", ids, positions, model.config.encoder_embedding_norm)
    sublayers = [part for layer in model.encoder for part in _sublayers(layer)]
    hidden = layers.through(x, sublayers, model.encoder_norm, compute)
    cross = layers.product(hidden, model.cross_kv)  # of all decoder layers: the model has them as one layer
    outputs = [
        declared(hidden, signature.HIDDEN, layers.dtype, ["tokens", model.config.width]),
        declared(cross, signature.CROSS, layers.dtype, ["tokens", model.cross_kv.out_features]),
    ]
    return layers.nodes.model("device_encoder", inputs, outputs)


def _sublayers(layer: nn.Module) -> tuple[SelfAttention, FeedForward]:
    assert isinstance(layer, EncoderLayer)
    return layer.attention, layer.feed_forward
