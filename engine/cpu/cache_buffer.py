"""The cache tensors of the standard graphs, where a row's place is its number."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.host.cache_memory import CacheMemory
from models.package.declared.tensors import CacheTensor


class CacheBuffer(CacheMemory):
    """Rows that are started and copied, and what the graph wants of their last source tokens."""

    def __init__(self, tensors: Sequence[CacheTensor], rows: int, longest: int) -> None:
        """`longest`: the most positions a row can need."""
        super().__init__(tensors, rows, longest)
        first = tensors[0]
        heads = first.heads if first.last else 0
        self.last = np.zeros((len(tensors), rows, 1, heads * first.head_dim), self.array.dtype)
        """What the graph wants of each row's last source token, if it does."""

    def start(self, row: int, encoded: Mapping[str, NDArray[np.floating]]) -> None:
        """Makes a row what it is before its first step. `encoded`: encoder outputs of one sentence, by name."""
        _, _, heads, _, slot = self.array.shape
        for index, tensor in enumerate(self.tensors):
            if tensor.start is not None:
                value = encoded[tensor.start].reshape(heads, -1, slot)
                self.array[index, row, :, : value.shape[1]] = value
                if tensor.last is not None:
                    self.last[index, row, 0] = value[:, -1].reshape(-1)
            elif tensor.grows is None:
                self.array[index, row] = 0

    def copy(self, source: int, target: int, length: int) -> int:
        """Makes row `target` hold the first `length` positions of row `source`. Returns the bytes of them."""
        positions = self.array[:, source, :, :length]
        self.array[:, target, :, :length] = positions
        self.last[:, target] = self.last[:, source]
        return positions.nbytes

    def bound_last(self, rows: int) -> Iterator[tuple[str, NDArray[np.floating]]]:
        """By the name of its input, what the graph wants of the last source token."""
        for tensor, array in zip(self.tensors, self.last, strict=True):
            if tensor.last is not None:
                yield tensor.last, array[:rows]
