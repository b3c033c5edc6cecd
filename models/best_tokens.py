"""From logits to the best tokens of each row: the last part of the decoder graph.

In two stages, because ONNX Runtime's TopK over a whole vocabulary is slow: the vocabulary, padded to whole blocks, is
cut into them, and the k best tokens lie in the k blocks with the best maxima.
"""

import torch
from torch import Tensor

from models.package.signature import MAX_CANDIDATES, NO_TOKEN

BLOCK = 128
"""Largest vocabulary block."""
NEVER = -1e4
"""Logit of the ids that only fill up a block: no softmax sees it."""
LANES = 16
"""Copies of a row's best probability whose logarithm is taken. ONNX Runtime computes as many at once as fit into a
register, and the rest in a way that rounds otherwise: a row must fill registers of its own, or its log-probabilities
would depend on how many rows there are."""


def block_size(vocab_size: int, blocks: int = MAX_CANDIDATES) -> int:
    """The largest power of two up to BLOCK that cuts the vocabulary into so many blocks or more, or 1."""
    size = BLOCK
    while size > 1 and vocab_size < size * blocks:
        size //= 2
    return size


def padded_size(vocab_size: int) -> int:
    """The vocabulary size, rounded up to whole blocks."""
    size = block_size(vocab_size)
    return -(-vocab_size // size) * size


def best_tokens(logits: Tensor, k: int, block: int) -> tuple[Tensor, Tensor]:
    """The k best tokens of each row and their log-probabilities, best first.

    logits: [rows, vocabulary]. Returns ids int64 [rows, k] and log-probabilities float32 [rows, k].
    """
    if logits.dtype == torch.bfloat16:
        logits = logits.float()  # see models.package.declared.precision
    blocks = logits.unflatten(1, (-1, block))
    # .max(2).values rather than amax, which exports with two Casts in fp16.
    best = blocks.max(2).values.topk(k).indices.unsqueeze(2)
    top, inside = _join_blocks(blocks.gather(1, best.expand(-1, -1, block))).topk(k)
    # A table of the blocks' ids rather than `inside // block` and `inside % block`, which export as eight nodes.
    ids = _join_blocks(best * block + torch.arange(block, device=logits.device)).gather(1, inside)
    return ids, _log_probs(logits, ids, top)


def best_allowed_tokens(logits: Tensor, allowed: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same of a choice: log-probabilities are over the allowed tokens alone.

    logits: [rows or more, tokens]; allowed: int64 [rows, places], see `models.package.signature`
    """
    if logits.dtype == torch.bfloat16:
        logits = logits.float()
    ids = allowed.clamp(min=0)
    scores = torch.where(allowed == NO_TOKEN, NEVER, logits.gather(1, ids))
    top, inside = scores.topk(k)  # of a thousand: blocks would gain nothing
    return ids.gather(1, inside), _log_probs(scores, inside, top)


def _log_probs(logits: Tensor, best: Tensor, top: Tensor) -> Tensor:
    """Log-probabilities [rows, k] of the tokens at the places `best`, whose logits are `top`, best first."""
    # The best token's probability gives the normaliser. It is at least 1 / vocabulary, so its logarithm is safe, and a
    # softmax is cheaper than a log-softmax of the whole vocabulary: 3 % of a step.
    best_log_prob = logits.softmax(1).gather(1, best[:, :1].expand(-1, LANES)).float().log()[:, :1]
    top = top.float()
    return top - top[:, :1] + best_log_prob


def _join_blocks(x: Tensor) -> Tensor:
    """[rows, k, block] -> [rows, k * block].

    The exporter would compute the new shape from those of two inputs, which a CUDA device leaves to its host.
    """
    if not torch.onnx.is_in_onnx_export():
        return x.flatten(1)
    shape = x.shape[0], x.shape[1] * x.shape[2]
    return torch.onnx.ops.symbolic("Flatten", [x], {"axis": 1}, dtype=x.dtype, shape=shape)
