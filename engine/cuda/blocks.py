"""The memory of a running batch on a device."""

from dataclasses import dataclass

from engine.cuda.runtime import Block, DeviceRuntime, Precision
from engine.devices.buffers import Buffer
from engine.devices.sizing import ID_BYTES
from models.config import ModelConfig
from models.package import signature
from models.package.signature import Kind


@dataclass(frozen=True, slots=True)
class CacheBlocks:
    """What rows keep, each [tensors, rows, ...]. There may be no tensors of a kind."""

    self_attention: Block
    """Keys and values of the target so far."""
    cross_attention: Block
    """Keys and values of the source."""
    last: Block
    """Those of its last token, once more."""
    state: Block
    """Of recurrences: one slot a row."""
    no_state: Block
    """A row as it begins: zeros."""
    allowed: Block | None
    """With a shortlist, the tokens that rows may have: int64, one a slot."""
    buffers: tuple[Buffer, ...]
    """The memory itself."""

    @property
    def rows(self) -> int:
        return self.cross_attention.rows


def allocate_blocks(
    runtime: DeviceRuntime,
    config: ModelConfig,
    precision: Precision,
    rows: int,
    source_capacity: int,
    target_capacity: int,
    allowed_places: int,
) -> CacheBlocks:
    """`allowed_places`: 0 without a shortlist."""
    buffers: list[Buffer] = []

    def block(tensors: int, rows: int, heads: int, places: int, slot_bytes: int) -> Block:
        """Zeroed, because attention reads places that it gives no weight: they must be numbers."""
        size_bytes = Block(0, tensors, rows, heads, places, slot_bytes).size_bytes
        buffer = runtime.allocate(size_bytes)
        runtime.transfers.clear(buffer.address, size_bytes)
        buffers.append(buffer)
        return Block(buffer.address, tensors, rows, heads, places, slot_bytes)

    count = {kind: len(signature.cache_tensors(config, kind)) for kind in Kind}
    heads, head_bytes = config.decoder_heads, config.decoder_head_dim * precision.size_bytes
    state_bytes = config.width * precision.size_bytes
    return CacheBlocks(
        # Two places at least: GroupQueryAttention takes a step with a total of one for a first prompt.
        self_attention=block(count[Kind.SELF], rows, heads, max(2, target_capacity), head_bytes),
        cross_attention=block(count[Kind.CROSS], rows, heads, max(2, source_capacity), head_bytes),
        last=block(count[Kind.CROSS], rows, heads, 1, head_bytes),
        state=block(count[Kind.STATE], rows, 1, 1, state_bytes),
        no_state=block(count[Kind.STATE], 1, 1, 1, state_bytes),
        allowed=block(1, rows, 1, allowed_places, ID_BYTES) if allowed_places else None,
        buffers=tuple(buffers),
    )
