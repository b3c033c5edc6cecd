"""What a run of the standard encoder graph left on the device: sources of the same padded length."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.cuda.blocks import CacheBlocks
from engine.cuda.output import CudaOutput
from engine.cuda.runtime import Block, DeviceRuntime, NumberType
from engine.devices.buffers import Buffer


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """See `EncodedBatch`."""

    runtime: DeviceRuntime
    numbers: NumberType
    """Of hidden states."""
    width: int
    states: Buffer
    """The last hidden states [sentences, places, width]."""
    sentences: int
    """With those that fill up the batch."""
    places: int
    """Tokens of each, padding included."""
    lengths: Sequence[int]
    """Tokens of each source."""
    starts: Sequence[Block | None]
    """What cache tensors start with, in the order of `alike`. None: those start with zeros."""
    buffers: Sequence[Buffer]
    """The memory of that."""
    output: CudaOutput | None
    allowed: tuple[Block, Buffer] | None
    """With a shortlist, what the sources are allowed."""

    def computed_tokens(self, source: int) -> float:
        """The same for all."""
        return self.sentences * self.places / len(self.lengths)

    def hidden(self, source: int) -> NDArray[np.float32]:
        """See `EncodedBatch`."""
        token_bytes, length = self.width * self.numbers.size_bytes, self.lengths[source]
        raw = self.runtime.read(self.states.address + source * self.places * token_bytes, length * token_bytes)
        return self.numbers.to_float(raw).reshape(length, self.width)

    def copy_to(self, blocks: CacheBlocks, sources: Sequence[int], places: Sequence[int]) -> None:
        """One run for each block of the cache."""
        move, nothing_before = self.runtime.move, [0] * len(places)
        for tensors, start in zip(blocks.tensors, self.starts, strict=True):
            block = tensors.block
            if start is not None:
                first = start.starts(sources)
                move(start, first, block, block.starts(places), start.places)
                if tensors.last is not None:
                    last = [at + self.lengths[source] - 1 for at, source in zip(first, sources, strict=True)]
                    move(start, last, tensors.last, tensors.last.starts(places), 1)
            elif tensors.zeros is not None:
                move(tensors.zeros, nothing_before, block, block.starts(places), 1)
        if self.output is not None and self.allowed is not None and blocks.allowed is not None:
            nothing, (allowed, _) = self.output.nothing, self.allowed
            targets = blocks.allowed.starts(places)
            move(nothing, nothing_before, blocks.allowed, targets, nothing.places)
            move(allowed, allowed.starts(sources), blocks.allowed, targets, allowed.places)
