"""The native encoder: one pass over sources, one after another, without padding. Of an encoder alone, hidden states."""

import onnx_ir as ir
from onnx_ir import DataType

from export.native.layers import Layers
from export.native.nodes import Nodes, declared, variable
from export.quantization.recipe import Recipe
from models.layers import EncoderLayer
from models.package import signature
from models.transformer import Transformer

AXES = {"ids": "tokens", "positions": "tokens", "lengths": "sentences"}


def native_encoder(model: Transformer, recipe: Recipe) -> ir.Model:
    """The graph."""
    nodes, width = Nodes(), model.config.width
    layers = Layers(nodes, model, recipe)
    dtypes = DataType.INT64, DataType.INT32, DataType.INT32
    inputs = [
        variable(name, dtype, [AXES[name]]) for name, dtype in zip(signature.NATIVE_ENCODER_INPUTS, dtypes, strict=True)
    ]
    ids, positions, lengths = inputs
    x = layers.embed_source(ids, positions)
    biases = layers.biases("source", len(model.encoder))
    for layer, bias in zip(model.encoder, biases, strict=True):
        assert isinstance(layer, EncoderLayer)
        attention = layer.attention
        qkv = layers.project(x, attention.residual, attention.qkv)
        attributes = {"heads": attention.heads, **layers.scale()}
        attended = nodes.ours("PackedAttention", [qkv, lengths, bias], attributes)
        x = layers.leave(attended, attention.out, attention.residual, x)
        x = layers.feed_forward(x, layer.feed_forward)
    hidden = layers.norm(x, model.encoder_norm)
    outputs = [declared(hidden, signature.HIDDEN, DataType.FLOAT, ["tokens", width])]
    if model.config.decoder_layers:
        cross = layers.linear.product(hidden, layers.linear.find(model.cross_kv))
        outputs.append(declared(cross, signature.CROSS, DataType.FLOAT, ["tokens", model.cross_kv.out_features]))
    return nodes.model("native_encoder", inputs, outputs)
