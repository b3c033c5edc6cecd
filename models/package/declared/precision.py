"""How a package's graphs compute: in which precision, and attention by which operators.

In an fp16 or bf16 package weights, hidden states, keys, values and logits have 16 bits. What stays fp32 all the same:

    layer norms         mean and variance of a row: LayerNormalization accumulates them in fp32 (stash_type 1), because
                        squares leave the range of fp16 at 256, and sums of 512 numbers lose three digits
    matrix products     sums: kernels add in fp32 and round once, when the sum is written
    softmax             exponentials and their sum, inside the kernels of attention and of Softmax, for the same reason
    log-probabilities   everything after the probability of the best token: a score adds up the log-probabilities of a
                        whole sentence, and one of -8 would be rounded to 1/128 (fp16) or 1/16 (bf16). These are k
                        numbers a row: it costs nothing
    bf16: best tokens   the whole choice of the best tokens, because TopK knows no bf16 before opset 24
In an int16 or int8 package the weights of linear layers are whole numbers, and everything between them is fp32.
"""

from typing import Literal

Precision = Literal["fp32", "fp16", "bf16", "int16", "int8"]

NUMBER_BYTES: dict[Precision, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "int16": 2, "int8": 1}

WHOLE: frozenset[Precision] = frozenset({"int16", "int8"})
"""Of weights, on CPUs. Everything else of such a package is fp32."""

FEW_BITS: frozenset[Precision] = frozenset({"fp16", "bf16", "int8"})
"""What is rounded to so few is rounded otherwise where sums are made in another order."""

OutputLayer = Literal["screened", "full"]
"""screened: all tokens are looked at in 8 bits, and those that may be best are computed in fp32. full: all in fp32."""

AttentionKind = Literal["fused", "plain"]
"""fused: com.microsoft.GroupQueryAttention and MultiHeadAttention. On CUDA, the former knows fp16 and bf16 only.
plain: standard ONNX operators, which run in any precision on any device, and slower."""
