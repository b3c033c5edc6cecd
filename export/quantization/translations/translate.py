"""Greedy translations by the PyTorch model itself: no graph is there yet."""

from collections.abc import Sequence

import torch
from torch import Tensor

from export.verification.reference import until_end
from models.decoding import TokenIds
from models.package import derived
from models.transformer import Transformer

BATCH = 32
"""Sentences that are translated at once."""


@torch.no_grad()
def translate(model: Transformer, sources: Sequence[TokenIds], longest: int) -> list[TokenIds]:
    """What every source becomes, its end token included, or its first `longest` tokens."""
    targets: dict[int, TokenIds] = {}
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for start in range(0, len(order), BATCH):
        indices = order[start : start + BATCH]
        found = _translate(model, [sources[index] for index in indices], longest)
        targets |= zip(indices, found, strict=True)
    return [targets[index] for index in range(len(sources))]


def _translate(model: Transformer, sources: Sequence[TokenIds], longest: int) -> list[TokenIds]:
    """Of one batch."""
    config, rows = model.config, len(sources)
    lengths = torch.tensor([len(source) for source in sources], dtype=torch.int32)
    padded = [[*source, *[config.pad_id] * (int(lengths.max()) - len(source))] for source in sources]
    cross = model.cross_keys_values(model.encode(torch.tensor(padded), lengths))
    last = [_last(tensor, lengths) for tensor in cross]
    shapes = [tensor.shape(rows, longest) for tensor in derived.target_tensors(config, "fp32")]
    past = [torch.zeros(shape) for shape in shapes]
    ids = torch.full((rows,), config.decoder_start_id)
    chosen = torch.empty(rows, longest, dtype=torch.int64)
    for position in range(longest):
        positions, total = torch.full((rows,), position, dtype=torch.int32), torch.tensor(position + 1)
        x, _, present = model.decode_step(ids, positions, total, lengths - 1, lengths.max(), past, cross, last)
        past = present[: len(past)]
        ids = model.logits(x)[:, : config.target_vocab_size].argmax(1)
        chosen[:, position] = ids
        if (chosen[:, : position + 1] == config.end_id).any(1).all():
            break
    return [until_end(row, config.end_id) for row in chosen[:, : position + 1].tolist()]


def _last(cross: Tensor, lengths: Tensor) -> Tensor:
    """Keys or values [rows, heads, source, head_dim] of each row's last token [rows, 1, width]."""
    rows = torch.arange(len(lengths))
    return cross[rows, :, lengths.long() - 1].flatten(1).unsqueeze(1)
