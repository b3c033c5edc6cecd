"""Batches of sentences of similar length, in an order that a seed decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.config import ModelShape
from training.data.text import Corpus, Sentences
from training.errors import TrainingError

Rows = NDArray[np.int64]
"""Indices of the pairs that make a batch."""


@dataclass(frozen=True)
class Batch:
    """Padded pairs."""

    rows: Rows
    """Which pairs of the corpus."""
    source_ids: Tensor
    """[sentences, source]"""
    source_lengths: Tensor
    """[sentences]"""
    inputs: Tensor
    """What the decoder is given: its start token, then the target but for its last token [sentences, target]."""
    labels: Tensor
    """The target [sentences, target]."""
    is_token: Tensor
    """Where `labels` is not padding, bool [sentences, target]."""

    @property
    def source_is_token(self) -> Tensor:
        """Where `source_ids` is not padding, bool [sentences, source]."""
        places = torch.arange(self.source_ids.shape[1], device=self.source_ids.device)
        return places < self.source_lengths.unsqueeze(1)

    def to(self, device: torch.device) -> "Batch":
        """The same on a device."""
        fields = (self.source_ids, self.source_lengths, self.inputs, self.labels, self.is_token)
        return Batch(self.rows, *(tensor.to(device, non_blocking=True) for tensor in fields))


def make_batch(corpus: Corpus, rows: Rows, config: ModelShape) -> Batch:
    """Pads the pairs of a batch."""
    source, source_lengths = _pad(corpus.source, rows, config.pad_id)
    labels, target_lengths = _pad(corpus.target, rows, config.pad_id)
    start = labels.new_full((len(rows), 1), config.decoder_start_id)
    return Batch(
        rows=rows,
        source_ids=source,
        source_lengths=source_lengths,
        inputs=torch.cat([start, labels[:, :-1]], dim=1),
        labels=labels,
        is_token=torch.arange(labels.shape[1]) < target_lengths.unsqueeze(1),
    )


def plan(corpus: Corpus, tokens: int, order: NDArray[np.int64]) -> list[Rows]:
    """Cuts pairs, sorted by length, into batches of at most `tokens` tokens on either side, padding included.

    order: int64 [pairs], the rank of each pair among pairs of equal lengths. Raises TrainingError.
    """
    source, target = corpus.source.lengths, corpus.target.lengths
    longer = np.maximum(source, target)
    if longer.max() > tokens:
        raise TrainingError(f"batches.tokens is {tokens}, but a sentence has {longer.max()} tokens; raise it to that")
    sorted_rows = np.lexsort((order, source, target))
    batches, start, widest = [], 0, 0
    for end, length in enumerate(longer[sorted_rows].tolist()):
        widest = max(widest, length)
        if widest * (end - start + 1) > tokens:
            batches.append(sorted_rows[start:end])
            start, widest = end, length
    return [*batches, sorted_rows[start:]]


@dataclass
class Position:
    """How far a run has come in its training text."""

    epoch: int = 0
    batch: int = 0
    """Batches of this epoch that were used."""
    text: str | None = None
    """The text's fingerprint, once the run has begun."""


class BatchOrder:
    """The batches of all epochs. Every epoch makes its own, in its own order."""

    def __init__(self, corpus: Corpus, tokens: int, seed: int, position: Position) -> None:
        """Goes on from a position. Raises TrainingError where it is of another text, or a sentence fits no batch."""
        if position.text not in (None, corpus.fingerprint):
            raise TrainingError(
                "the checkpoint is of a run on other text, or with another vocabulary: put data back as it was, or "
                "choose another output folder"
            )
        self.position = replace(position, text=corpus.fingerprint)
        self._corpus, self._tokens, self._seed = corpus, tokens, seed
        self._batches = self._plan()

    def take(self, count: int) -> list[Rows]:
        """The next batches."""
        return [self._next() for _ in range(count)]

    def _next(self) -> Rows:
        if self.position.batch >= len(self._batches):
            self.position = Position(self.position.epoch + 1, text=self.position.text)
            self._batches = self._plan()
        rows = self._batches[self.position.batch]
        self.position.batch += 1
        return rows

    def _plan(self) -> list[Rows]:
        random = np.random.default_rng([self._seed, self.position.epoch])
        batches = plan(self._corpus, self._tokens, random.permutation(len(self._corpus)))
        return [batches[index] for index in random.permutation(len(batches))]


def in_order(corpus: Corpus, tokens: int) -> Iterator[Rows]:
    """Every pair once: for validation."""
    yield from plan(corpus, tokens, np.arange(len(corpus)))


def target_tokens(corpus: Corpus, batches: Sequence[Rows]) -> int:
    """Target tokens of some batches, padding not included."""
    lengths = corpus.target.lengths
    return sum(int(lengths[rows].sum()) for rows in batches)


def _pad(sentences: Sentences, rows: Rows, pad_id: int) -> tuple[Tensor, Tensor]:
    """Ids [sentences, longest] and lengths [sentences]."""
    chosen = [sentences[row] for row in rows]
    lengths = np.array([len(ids) for ids in chosen])
    padded = np.full((len(rows), lengths.max()), pad_id, np.int64)
    for row, ids in zip(padded, chosen, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded), torch.from_numpy(lengths)
