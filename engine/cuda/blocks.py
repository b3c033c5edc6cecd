"""The memory of a running batch on a device."""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.cuda.runtime import NUMBER_TYPES, Block, DeviceRuntime, Tensor
from engine.devices.buffers import Buffer
from engine.devices.sizing import ID_BYTES
from models.package.declared.graphs import GraphsSpec
from models.package.declared.tensors import CacheTensor, alike

FEWEST_PLACES = 2
"""GroupQueryAttention takes a step with a total of one for a first prompt."""


@dataclass(frozen=True, slots=True)
class TensorBlock:
    """What rows keep in tensors that are alike."""

    tensors: tuple[CacheTensor, ...]
    block: Block
    last: Block | None
    """What the graph wants of each row's last source token, if it does."""
    zeros: Block | None
    """A row as it begins, where that is not left by the encoder, nor hidden behind its position."""

    @property
    def first(self) -> CacheTensor:
        """One for all."""
        return self.tensors[0]

    def bound(self, rows: int) -> Iterator[tuple[CacheTensor, Tensor]]:
        """Every tensor with the memory of its first rows, which is both its past and its present."""
        element, shape = NUMBER_TYPES[self.first.precision].element, self.first.shape(rows, self.block.places)
        for tensor, address in zip(self.tensors, self.block.tensor_addresses(), strict=True):
            yield tensor, (element, shape, address)

    def bound_last(self, rows: int) -> Iterator[tuple[str, Tensor]]:
        """By the name of its input, what the graph wants of the last source token."""
        if self.last is not None:
            element = NUMBER_TYPES[self.first.precision].element
            shape = rows, 1, self.first.heads * self.first.head_dim
            for tensor, address in zip(self.tensors, self.last.tensor_addresses(), strict=True):
                if tensor.last is not None:
                    yield tensor.last, (element, shape, address)


@dataclass(frozen=True, slots=True)
class CacheBlocks:
    """What rows keep."""

    rows: int
    """Of the batch. Blocks may have some to spare."""
    source_places: int
    target_places: int
    tensors: tuple[TensorBlock, ...]
    allowed: Block | None
    """With a shortlist, the tokens that rows may have: int64, one a slot."""
    buffers: tuple[Buffer, ...]
    """The memory itself."""

    @property
    def of_hypotheses(self) -> list[TensorBlock]:
        return [block for block in self.tensors if block.first.owner == "hypothesis"]

    @property
    def repeatable(self) -> bool:
        """A step that is made and not wanted, or made twice, writes only behind the positions that count."""
        return all(block.first.grows is not None for block in self.of_hypotheses)


def allocate_blocks(
    runtime: DeviceRuntime,
    spec: GraphsSpec,
    rows: int,
    source_capacity: int,
    target_capacity: int,
    allowed_places: int,
    spare_rows: int,
) -> CacheBlocks:
    """`allowed_places`: 0 without a shortlist."""
    buffers: list[Buffer] = []
    source_places, target_places = (max(FEWEST_PLACES, capacity) for capacity in (source_capacity, target_capacity))

    def allocate(tensors: int, rows: int, heads: int, places: int, slot_bytes: int) -> Block:
        """Zeroed, because attention reads places that it gives no weight: they must be numbers."""
        size_bytes = Block(0, tensors, rows, heads, places, slot_bytes).size_bytes
        buffer = runtime.allocate(size_bytes)
        runtime.transfers.clear(buffer.address, size_bytes)
        buffers.append(buffer)
        return Block(buffer.address, tensors, rows, heads, places, slot_bytes)

    def tensor_block(tensors: tuple[CacheTensor, ...]) -> TensorBlock:
        first, count = tensors[0], len(tensors)
        slot_bytes = first.head_dim * NUMBER_TYPES[first.precision].size_bytes
        places = {"source": source_places, "target": target_places, None: 1}[first.grows]
        return TensorBlock(
            tensors,
            block=allocate(count, rows + spare_rows, first.heads, places, slot_bytes),
            last=allocate(count, rows, first.heads, 1, slot_bytes) if first.last is not None else None,
            zeros=allocate(count, 1, 1, 1, slot_bytes) if first.start is None and first.grows is None else None,
        )

    tensors = tuple(tensor_block(tensors) for tensors in alike(spec.cache))
    allowed = allocate(1, rows, 1, allowed_places, ID_BYTES) if allowed_places else None
    return CacheBlocks(rows, source_places, target_places, tensors, allowed, tuple(buffers))
