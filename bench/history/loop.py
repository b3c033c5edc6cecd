"""What many a recurrent model is served by: a loop in PyTorch over whole batches."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from models.architectures.recurrent.model import Recurrent

Tokens = tuple[int, ...]


def by_pytorch(model: Recurrent, sources: Sequence[Tokens], rows: int, least: int, most: int) -> list[Tokens]:
    """The tokens of greedy search by a model that attends, in the order of the sources.

    Those of like length are in one batch, which stops with its last target: what such a loop does best.
    rows: of a batch; least, most: tokens of a target
    """
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    found = dict[int, Tokens]()
    for first in range(0, len(order), rows):
        batch = order[first : first + rows]
        found |= zip(batch, _batch(model, [sources[index] for index in batch], least, most), strict=True)
    return [found[index] for index in range(len(sources))]


@torch.inference_mode()
def _batch(model: Recurrent, sources: Sequence[Tokens], least: int, most: int) -> list[Tokens]:
    lengths = torch.tensor([len(source) for source in sources])
    ids = pad_sequence([torch.tensor(source) for source in sources], batch_first=True)
    _, starts = model.encode_source(ids, lengths)
    look, states = model.look(starts, lengths), starts[:-2]
    end, fed = model.config.end_id, torch.full((len(sources),), model.config.decoder_start_id)
    ended, found = torch.zeros(len(sources), dtype=torch.bool), list[Tensor]()
    while len(found) < most and not ended.all():
        readout, _, states = model.step(fed, states, model.attending(look, starts, lengths, len(found)))
        logits = model.logits(readout)
        if len(found) < least:
            logits[:, end] = -torch.inf
        fed = logits.argmax(1)
        ended |= fed == end
        found.append(fed)
    return [_ended(row, end) for row in torch.stack(found, 1).tolist()]


def _ended(row: list[int], end: int) -> Tokens:
    """What comes before the end token, and this one."""
    return tuple(row[: row.index(end) + 1 if end in row else None])
