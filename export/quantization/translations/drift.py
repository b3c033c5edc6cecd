"""What 8 bits cost: how far logits are from those of fp32, and how many translations stay the same.

Both are seen on the fp32 model's own translations, teacher-forced. A translation stays the same if and only if, after
every beginning of it, its next token is still the most probable one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from export.quantization.calibrate import Pair, hidden_states
from models.transformer import Transformer

Logits = list[Tensor]
"""Of each translation [target, vocabulary]."""


@torch.no_grad()
def teacher_forced(model: Transformer, pairs: Sequence[Pair]) -> Logits:
    """Before each token of each translation."""
    size = model.config.target_vocab_size
    return [model.logits(hidden_states(model, source, target))[:, :size] for source, target in pairs]


def drift(found: Logits, expected: Logits) -> float:
    """Standard deviation of the logits' differences, but for what is common to a row: no probability sees that."""
    differences = torch.cat([ours - theirs for ours, theirs in zip(found, expected, strict=True)])
    return float((differences - differences.mean(1, keepdim=True)).std())


def equal_texts(found: Logits, pairs: Sequence[Pair]) -> int:
    """How many translations greedy search would find again."""
    return sum(logits.argmax(1).tolist() == list(target) for logits, (_, target) in zip(found, pairs, strict=True))
