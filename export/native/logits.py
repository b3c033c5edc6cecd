"""Logits that `BestTokens` never stores: of whole rows, and of tokens by name."""

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from export.native.layers import Layers
from export.native.nodes import Nodes, declared, variable
from export.quantization.recipe import Recipe
from models.package import signature
from models.transformer import Transformer


def logits_graph(model: Transformer, recipe: Recipe) -> ir.Model:
    """What the decoder calls hidden [rows, width] -> logits [rows, vocabulary], by operators of ONNX alone."""
    nodes = Nodes()
    weight, scales, bias = Layers(nodes, model, recipe).output()
    if scales is not None:  # ONNX Runtime computes this once
        column = nodes.standard("Unsqueeze", [scales, nodes.constant("last", np.array([1]))])
        weight = nodes.standard("Mul", [nodes.standard("Cast", [weight], {"to": DataType.FLOAT.value}), column])
    hidden = variable(signature.HIDDEN, DataType.FLOAT, ["rows", model.config.width])
    logits = nodes.standard("Gemm", [hidden, weight, bias], {"transB": 1})
    size = model.config.target_vocab_size
    return nodes.model("logits", [hidden], [declared(logits, signature.LOGITS, DataType.FLOAT, ["rows", size])])


def named_graph(model: Transformer, recipe: Recipe) -> ir.Model:
    """The same hidden states, tokens [rows, named] -> their logits [rows, named], by an operator of ours."""
    nodes = Nodes()
    hidden = variable(signature.HIDDEN, DataType.FLOAT, ["rows", model.config.width])
    tokens = variable(signature.NAMED_TOKENS, DataType.INT64, ["rows", "named"])
    logits = nodes.ours("NamedTokens", [hidden, tokens, *Layers(nodes, model, recipe).output()])
    outputs = [declared(logits, signature.LOGITS, DataType.FLOAT, ["rows", "named"])]
    return nodes.model("native_named", [hidden, tokens], outputs)
