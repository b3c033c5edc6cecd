"""What a frozen teacher says of each training pair: computed in the first epoch, kept on disk for the others."""

import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.batches import Rows
from training.data.text import Corpus, Sentences
from training.errors import TrainingError


class TeacherNotes:
    """Encoder outputs and decoder hidden states of the pairs of a corpus, in fp16.

    They lie in a nameless file, which is gone when the process ends, however it ends.
    """

    def __init__(self, folder: Path, corpus: Corpus, width: int, layers: int) -> None:
        """Reserves the space. Raises TrainingError where the disk has not so much.

        layers: hidden states of each target token
        """
        self._corpus, self._layers = corpus, layers
        tokens = int(corpus.source.ends[-1]) + layers * int(corpus.target.ends[-1])
        notes = reserve(folder, tokens, width)
        self._memory = notes[: corpus.source.ends[-1]]
        self._hidden = notes[corpus.source.ends[-1] :].reshape(-1, layers, width)
        self._taken = np.zeros(len(corpus), bool)

    def taken(self, rows: Rows) -> bool:
        """Whether there are notes of all these pairs."""
        return bool(self._taken[rows].all())

    def take(self, rows: Rows, memory: Tensor, hidden: Sequence[Tensor]) -> None:
        """Keeps what the teacher said.

        memory: [sentences, source, width]; hidden: each [target tokens, width], without padding
        """
        stacked = torch.stack(list(hidden), dim=1).to("cpu", torch.float16).numpy()
        start = 0
        for row, encoded in zip(rows, memory.to("cpu", torch.float16).numpy(), strict=True):
            source, target = span(self._corpus.source, row), span(self._corpus.target, row)
            self._memory[source] = encoded[: source.stop - source.start]
            end = start + target.stop - target.start
            self._hidden[target] = stacked[start:end]
            start = end
        self._taken[rows] = True

    def read(self, rows: Rows) -> tuple[Tensor, list[Tensor]]:
        """What was kept, in fp32 and as `take` was given it; the memory's padding is zero."""
        sources = [torch.from_numpy(self._memory[span(self._corpus.source, row)]) for row in rows]
        targets = np.concatenate([self._hidden[span(self._corpus.target, row)] for row in rows])
        memory = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True).float()
        return memory, list(torch.from_numpy(targets).float().unbind(1))


def reserve(folder: Path, tokens: int, width: int) -> NDArray[np.float16]:
    """Room for [tokens, width] on disk. Raises TrainingError where there is not enough."""
    folder.mkdir(parents=True, exist_ok=True)
    size = tokens * width * np.dtype(np.float16).itemsize
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            # Written to later without room, a mapped file would end the process without a word.
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise TrainingError(
                f"{folder} has no room for {size / 1e9:.1f} GB of the teacher's notes: {error.strerror}. Make room, "
                "use less text, or set distillation.notes = false, which asks the teacher in every epoch"
            ) from error
        mapped = mmap.mmap(file.fileno(), size)
    # The pairs of a batch lie anywhere: what the disk would read ahead of each is not wanted.
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, np.float16).reshape(tokens, width)


def span(sentences: Sentences, row: int) -> slice:
    """Where a sentence's tokens are among those of all."""
    end = int(sentences.ends[row])
    return slice(end - int(sentences.lengths[row]), end)
