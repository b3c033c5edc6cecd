"""How much memory of the host a model on the CPU takes, whatever is sent: a formula, and the rows that fit.

resident   what the process has when the model is loaded: measured
cache      workers x rows x the longest source and target
growth     the largest block of one worker's cache once more: it grows by copying, one worker at a time
work       what encoder runs and steps of all workers need, twice because ONNX Runtime doubles what it takes; and what
           is encoded and has not joined yet
besides    what the caller knows of: answers that are kept, texts that wait
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.cache_memory import STEP
from engine.cpu.decoder import RUN_TOKENS
from engine.devices.session import DeviceError
from engine.devices.sizing import FLOAT_BYTES, ID_BYTES, most_that_fit, tensor_bytes
from engine.queueing.queue import JOINING_TOKENS
from models.package.graphs import CacheTensor, GraphsSpec, alike

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What there is, and what else is needed of it."""

    limit_bytes: int
    besides_bytes: int = 0
    least_rows: int = 1
    """Fewer are of no use."""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """A loaded model, and the batches it is to decode."""

    graphs: GraphsSpec
    native: bool
    """Its native graphs run."""
    workers: int
    rows: int
    source_tokens: int
    target_tokens: int
    resident_bytes: int
    besides_bytes: int

    @property
    def cache_bytes(self) -> int:
        last = sum(tensor_bytes(tensor, 1) for tensor in self._tensors if tensor.last is not None)
        allowed = 0
        if self.graphs.output is not None:  # the tokens of each row, and rows of the output layer for all of them
            size = self.graphs.vocabulary.target_size
            allowed = self.rows * size * ID_BYTES + size * self.graphs.width * FLOAT_BYTES
        return self.workers * (sum(self._blocks) + self.rows * last + allowed)

    @property
    def growth_bytes(self) -> int:
        return max(self._blocks, default=0)

    @property
    def work_bytes(self) -> int:
        graphs = self.graphs
        kept = sum(tensor_bytes(tensor, 1) for tensor in graphs.cache if tensor.start is not None)
        joining = max(JOINING_TOKENS, self.source_tokens) * (kept + graphs.width * FLOAT_BYTES)
        heads = max((tensor.heads for tensor in self._tensors), default=0)
        run = max(RUN_TOKENS, self.source_tokens)
        encoder = run * (graphs.encoder_numbers + heads * self.source_tokens) * FLOAT_BYTES
        logits = (
            0 if self.native or graphs.decoder is None else 2 * self.rows * graphs.vocabulary.target_size * FLOAT_BYTES
        )
        return self.workers * (joining + 2 * (encoder + logits))

    @property
    def total_bytes(self) -> int:
        return self.resident_bytes + self.cache_bytes + self.growth_bytes + self.work_bytes + self.besides_bytes

    @property
    def _tensors(self) -> Sequence[CacheTensor]:
        return self.graphs.native.cache if self.native and self.graphs.native is not None else self.graphs.cache

    @property
    def _blocks(self) -> list[int]:
        """Bytes of the blocks of memory of one worker's cache."""
        places = {"target": _whole(self.target_tokens), "source": _whole(self.source_tokens), None: 1}
        groups = alike(self._tensors)
        return [self.rows * sum(tensor_bytes(tensor, places[tensor.grows]) for tensor in group) for group in groups]


def fit(load: HostLoad, memory: HostMemory, fewer: bool) -> HostLoad:
    """The load or, if it may have fewer rows, what fits of it.

    Raises DeviceError where that takes more memory than there is, with what would fit.
    """
    if load.total_bytes <= memory.limit_bytes:
        return load
    rows = most_that_fit(lambda n: replace(load, rows=n).total_bytes, load.rows, memory.limit_bytes)
    if fewer and rows >= memory.least_rows:
        return replace(load, rows=rows)
    raise DeviceError(_told(load, rows, memory.limit_bytes))


def _told(load: HostLoad, rows: int, limit: int) -> str:
    longest = min(load.source_tokens, load.target_tokens)
    tokens = most_that_fit(lambda n: replace(load, source_tokens=n, target_tokens=n).total_bytes, longest, limit)
    workers = most_that_fit(lambda n: replace(load, workers=n).total_bytes, load.workers, limit)
    fits = [f"{rows} rows of these lengths fit (--max-rows)"] if rows else []
    if tokens:
        fits.append(f"{load.rows} rows of {tokens} tokens (--max-source-tokens, --max-new-tokens)")
    if workers:
        fits.append(f"{workers} workers (--workers)")
    parts = {"loaded": load.resident_bytes, "cache": load.cache_bytes + load.growth_bytes}
    parts |= {"work": load.work_bytes, "besides": load.besides_bytes}
    told = ", ".join(f"{part} {megabytes(size)}" for part, size in parts.items())
    return (
        f"{load.workers} workers of {load.rows} rows of {load.source_tokens} source and {load.target_tokens} target "
        f"tokens may take {megabytes(load.total_bytes)} MB ({told}); {megabytes(limit)} MB may be used (--memory-mb): "
        f"{', or '.join(fits) or 'not even one row fits'}"
    )


def megabytes(size: int) -> int:
    return size // MEGABYTE


def _whole(tokens: int) -> int:
    """Places of a row: memory grows in whole steps."""
    return -(-tokens // STEP) * STEP
