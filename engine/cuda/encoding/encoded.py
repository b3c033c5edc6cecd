"""Encoded sources on a device, whichever encoder graph they came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks


class EncodedBatch(Protocol):
    """What one encoder run left on the device of several sources."""

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each source."""
        ...

    def computed_tokens(self, source: int) -> float:
        """Tokens that the encoder computed for it: its own, and its share of those that fill up the run."""
        ...

    def hidden(self, source: int) -> NDArray[np.float32]:
        """The last hidden states of its tokens [tokens, width]. Waits for the device."""
        ...

    def copy_to(self, blocks: CacheBlocks, sources: Sequence[int], places: Sequence[int]) -> None:
        """Enqueues the copy of sources into the cache, each to the place of that axis which rows have there."""
        ...


@dataclass(frozen=True, slots=True)
class CudaSource:
    """One source of a batch."""

    batch: EncodedBatch
    index: int
    """Which of the batch."""

    @property
    def length(self) -> int:
        """Its tokens."""
        return self.batch.lengths[self.index]

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it, see `EncodedBatch`."""
        return self.batch.computed_tokens(self.index)

    def hidden(self) -> NDArray[np.float32]:
        """The last hidden states of the source tokens [tokens, width]. Waits for the device."""
        return self.batch.hidden(self.index)


class Encoder(Protocol):
    """An encoder graph in use."""

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CudaSource]:
        """Encodes sources. named: see `engine.decoder.Decoder`.

        Raises ValueError for a source that is too long, OutOfMemory where the device has no room: what was encoded
        until then is given back.
        """
        ...

    def close(self) -> None:
        """Drops its sessions."""
        ...


def check_lengths(sources: Sequence[Sequence[int]], capacity: int) -> None:
    """Raises ValueError for a source that is too long."""
    longest = max(map(len, sources), default=0)
    if longest > capacity:
        raise ValueError(f"a source has {longest} tokens; the decoder was opened for {capacity}")
