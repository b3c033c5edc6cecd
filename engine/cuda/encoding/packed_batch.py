"""What a run of the encoder for GPUs left on the device: sources one behind another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.encoding.source_keeper import SourceKeeper
from engine.cuda.runtime import DeviceRuntime, NumberType, Tensor
from engine.devices.buffers import Buffer


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """See `EncodedBatch`."""

    runtime: DeviceRuntime
    keeper: SourceKeeper
    numbers: NumberType
    width: int
    memory: Buffer
    """The last hidden states [tokens, width], and then `cross`."""
    cross: Tensor
    """Keys and values of all decoder layers, as `SourceKeeper` takes them."""
    tokens: int
    """Of the run, with those that fill it up."""
    firsts: Sequence[int]
    """Where each source begins."""
    lengths: Sequence[int]
    """Tokens of each source."""

    def computed_tokens(self, source: int) -> float:
        """Each has a share of the run by its length."""
        return self.tokens * self.lengths[source] / sum(self.lengths)

    def hidden(self, source: int) -> NDArray[np.float32]:
        """See `EncodedBatch`."""
        token_bytes, length = self.width * self.numbers.size_bytes, self.lengths[source]
        raw = self.runtime.read(self.memory.address + self.firsts[source] * token_bytes, length * token_bytes)
        return self.numbers.to_float(raw).reshape(length, self.width)

    def copy_to(self, blocks: CacheBlocks, sources: Sequence[int], places: Sequence[int]) -> None:
        """One run for all sources. What is behind a source's last token stays as it is: no step looks there."""
        [tensors] = [tensors for tensors in blocks.tensors if tensors.first.owner == "source"]
        firsts, lengths = ([given[source] for source in sources] for given in (self.firsts, self.lengths))
        self.keeper.keep(self.cross, firsts, lengths, tensors.block, places)
