"""How much memory of the host models on the CPU take, whatever is sent: a formula, and the rows that fit.

resident   what the process has when all models are loaded: measured
cache      workers x rows x the longest source and target, and the few rows of the express worker
growth     the largest block of one worker's cache once more: it grows by copying, one worker at a time
work       what encoder runs and steps of all workers need, twice because ONNX Runtime doubles what it takes; and what
           is encoded and has not joined yet
late       graphs that are loaded when they are first needed, and what runs of those that score given targets need
besides    what the caller knows of: answers that are kept, texts that wait
callers    what those who call may take: connections, calls and their messages, answers that are not read
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.cpu.decoder import RUN_TOKENS
from engine.devices.session import DeviceError
from engine.devices.sizing import FLOAT_BYTES, ID_BYTES, most_that_fit, tensor_bytes
from engine.host.cache_memory import STEP
from engine.logits.target_graphs import OUTPUT_TOKENS, PASS_TOKENS
from engine.queueing.express import EXPRESS_TOKENS, express_rows
from engine.queueing.queue import JOINING_TOKENS
from models.package.declared.graphs import GraphFile, GraphsSpec
from models.package.declared.tensors import CacheTensor, alike

MEGABYTE = 1_000_000
ENOUGH_ROWS = 8
"""With fewer of them, more rows are worth more than another worker: a token took a core 503 microseconds alone, 188
among 8 rows and 171 among 32."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What there is, and what else is needed of it."""

    limit_bytes: int
    resident_bytes: int = 0
    """What the process has, the models being loaded."""
    besides_bytes: int = 0
    callers_bytes: int = 0
    """What those who call may take by whatever they send."""
    least_rows: int = 1
    """Fewer are of no use."""
    served: bool = True
    """To callers, for whom there are settings. Else it is for this process, which has none of them."""


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

    @property
    def express_rows(self) -> int:
        """Of the express worker, which is beside the others. 0: there is none."""
        return 0 if self.graphs.decoder is None else express_rows(self.rows)

    @property
    def cache_bytes(self) -> int:
        express = self._cache_bytes(self.express_rows, self._express_tokens) if self.express_rows else 0
        return self.workers * self._cache_bytes(self.rows, self.source_tokens) + express

    @property
    def growth_bytes(self) -> int:
        return max(self._blocks(self.rows, self.source_tokens), default=0)

    @property
    def work_bytes(self) -> int:
        joining = max(JOINING_TOKENS, self.source_tokens)
        run = max(RUN_TOKENS, self.source_tokens)
        each = self._work_bytes(self.rows, joining, run, self.source_tokens)
        tokens = self._express_tokens
        express = self._work_bytes(self.express_rows, tokens, tokens, tokens) if self.express_rows else 0
        return self.workers * each + express

    @property
    def late_bytes(self) -> int:
        graphs = self.graphs
        logits = graphs.logits.graph if self.native and graphs.logits is not None else None
        named = graphs.native.named if self.native and graphs.native is not None else None
        scoring = () if graphs.scoring is None else graphs.scoring.files
        optional: tuple[GraphFile | None, ...] = logits, named, *scoring
        files = [file for file in optional if file is not None]
        # Weights are packed for their products, and some stay beside that as they were.
        sessions = 2 * sum(file.weight_bytes for file in files)
        if graphs.scoring is None:
            return sessions
        heads = max((tensor.heads for tensor in self._tensors), default=0)
        token = graphs.encoder_numbers + heads * (self.source_tokens + self.target_tokens)
        of_pass = max(PASS_TOKENS, self.target_tokens) * token
        output = 2 * OUTPUT_TOKENS * graphs.vocabulary.target_size
        return sessions + (self.workers + bool(self.express_rows)) * (of_pass + output) * FLOAT_BYTES

    @property
    def needed_bytes(self) -> int:
        """Beside what is resident."""
        return self.cache_bytes + self.growth_bytes + self.work_bytes + self.late_bytes

    @property
    def _tensors(self) -> Sequence[CacheTensor]:
        return self.graphs.native.cache if self.native and self.graphs.native is not None else self.graphs.cache

    @property
    def _express_tokens(self) -> int:
        """Of the longest source that goes to the express worker, and of those that join there together."""
        return min(EXPRESS_TOKENS, self.source_tokens)

    def _cache_bytes(self, rows: int, source_tokens: int) -> int:
        """Of one worker's cache with so many rows."""
        last = sum(tensor_bytes(tensor, 1) for tensor in self._tensors if tensor.last is not None)
        allowed = 0
        if self.graphs.output is not None:  # the tokens of each row, and rows of the output layer for all of them
            size = self.graphs.vocabulary.target_size
            allowed = rows * size * ID_BYTES + size * self.graphs.width * FLOAT_BYTES
        return sum(self._blocks(rows, source_tokens)) + rows * last + allowed

    def _work_bytes(self, rows: int, joining: int, run: int, source_tokens: int) -> int:
        """Of one worker: source tokens that join together, those of an encoder run, and those of the longest."""
        graphs = self.graphs
        kept = sum(tensor_bytes(tensor, 1) for tensor in graphs.cache if tensor.start is not None)
        heads = max((tensor.heads for tensor in self._tensors), default=0)
        encoder = run * (graphs.encoder_numbers + heads * source_tokens) * FLOAT_BYTES
        whole = not (self.native or graphs.decoder is None)
        logits = 2 * rows * graphs.vocabulary.target_size * FLOAT_BYTES if whole else 0
        return joining * (kept + graphs.width * FLOAT_BYTES) + 2 * (encoder + logits)

    def _blocks(self, rows: int, source_tokens: int) -> list[int]:
        """Bytes of the blocks of memory of one worker's cache."""
        sides, groups = (_whole(source_tokens), _whole(self.target_tokens)), alike(self._tensors)
        return [rows * sum(tensor_bytes(tensor, tensor.places(*sides)) for tensor in group) for group in groups]


def total_bytes(loads: Sequence[HostLoad], memory: HostMemory) -> int:
    """What the process may come to take."""
    besides = memory.besides_bytes + memory.callers_bytes
    return memory.resident_bytes + besides + sum(load.needed_bytes for load in loads)


def fit(
    loads: Sequence[HostLoad], memory: HostMemory, fewer_rows: bool = False, fewer_workers: bool = False
) -> list[HostLoad]:
    """The loads or, of what there may be less of, what fits of them: as many of each.

    Rows go first, down to ENOUGH_ROWS, then workers, and rows again, down to `least_rows`. Raises DeviceError where
    that takes more memory than there is, with what would fit.
    """
    if total_bytes(loads, memory) <= memory.limit_bytes:
        return list(loads)
    most, wanted = max(load.workers for load in loads), max(load.rows for load in loads)
    least = memory.least_rows if fewer_rows else wanted
    enough = max(least, ENOUGH_ROWS) if fewer_rows else wanted
    for workers in range(most, 0, -1) if fewer_workers else [most]:
        some = _with(loads, workers=workers)
        rows = _most(some, memory, "rows")
        if rows >= enough:
            break
    if rows >= least:
        return _with(some, rows=rows)
    raise DeviceError(_told(loads, _most(loads, memory, "rows"), memory))


def _with(loads: Sequence[HostLoad], **most: int) -> list[HostLoad]:
    """The loads with no more than so much of each."""
    return [replace(load, **{name: min(n, getattr(load, name)) for name, n in most.items()}) for load in loads]


def _most(loads: Sequence[HostLoad], memory: HostMemory, *names: str) -> int:
    """How much of these every load may have, 0 if nothing."""
    most = max(min(getattr(load, name) for name in names) for load in loads)
    return most_that_fit(
        lambda n: total_bytes(_with(loads, **dict.fromkeys(names, n)), memory), most, memory.limit_bytes
    )


def _told(loads: Sequence[HostLoad], rows: int, memory: HostMemory) -> str:
    most = max(loads, key=lambda load: load.needed_bytes)
    tokens, workers = _most(loads, memory, "source_tokens", "target_tokens"), _most(loads, memory, "workers")
    fits = [f"{rows} rows of these lengths fit (--max-rows)"] if rows else []
    if tokens:
        fits.append(f"{most.rows} rows of {tokens} tokens fit (--max-source-tokens, --max-new-tokens)")
    if workers:
        fits.append(f"{workers} workers fit (--workers)")
    parts = {"loaded": memory.resident_bytes, "cache": sum(load.cache_bytes + load.growth_bytes for load in loads)}
    parts |= {"work": sum(load.work_bytes for load in loads), "late": sum(load.late_bytes for load in loads)}
    parts |= {"besides": memory.besides_bytes, "callers": memory.callers_bytes}
    told = ", ".join(f"{part} {megabytes(size)}" for part, size in parts.items())
    models = f"{len(loads)} models, the largest with " if len(loads) > 1 else ""
    nothing = "not even one row fits: give it more, such as by ulimit -v or the limit of its container"
    if memory.served:
        nothing = (
            "not even one row fits: raise it, or lower --cache-mb and --max-waiting (besides), or --max-waiting, "
            "--max-connections, --max-incoming and --max-message-bytes, or pass --no-http (callers)"
        )
    return (
        f"{models}{most.workers} workers of {most.rows} rows of {most.source_tokens} source and {most.target_tokens} "
        f"target tokens may take {megabytes(total_bytes(loads, memory))} MB ({told}); "
        f"{megabytes(memory.limit_bytes)} MB may be used (--memory-mb): {', or '.join(fits) or nothing}"
    )


def megabytes(size: int) -> int:
    return size // MEGABYTE


def _whole(tokens: int) -> int:
    """Places of a row: memory grows in whole steps."""
    return -(-tokens // STEP) * STEP
