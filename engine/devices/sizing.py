"""How much device memory a model takes: a formula, to refuse at start what would fail later, with what would fit.

weights    of every graph that is loaded; each session has its own copy of what they share
cache      rows x (what grows with the source x source places, what grows with the target x target places, states, the
           last source token once more); with a device step, what it takes if that is more
work       what runs need for a moment, and what an encoder run leaves until it has joined the batch; inputs and outputs
           of an encoder for GPUs lie in memory of their own besides
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from models.package.declared.graphs import GraphFile, GraphsSpec
from models.package.declared.precision import NUMBER_BYTES
from models.package.declared.tensors import CacheTensor

BATCH_TOKENS = 2048
"""Most tokens of one encoder run, padding included. More keep no device busier, and only take more memory."""
MOVED_BYTES = 16 << 20
"""Most that one run of the graph that moves rows moves: it lies in memory twice meanwhile."""
ID_BYTES = 8
FED_BYTES = 8 + 3 * 4
"""Of a token that the encoder for GPUs is fed: its id, its position, where its source begins and how long that is."""
INDEX_BYTES = 4
"""Of a slot's number, of which a device step has one for each row and place."""
FLOAT_BYTES = 4
RUNTIME_BYTES = 256 << 20
"""Kernels, cuBLAS and cuDNN workspaces, captured graphs. An estimate."""


@dataclass(frozen=True, slots=True)
class Load:
    """A model's graphs, and the batch they are to decode."""

    graphs: GraphsSpec
    rows: int
    source_tokens: int
    target_tokens: int
    besides_bytes: int = 0
    """What other models on the same device take."""

    @property
    def weight_bytes(self) -> int:
        graphs, step = self.graphs, self.graphs.device_step
        scoring = () if graphs.scoring is None else graphs.scoring.files
        standard = _weight_bytes(graphs.encoder, graphs.decoder)
        ours = 0 if step is None else _weight_bytes(step.encoder or graphs.encoder, step.decoder)
        return max(standard, ours) + _weight_bytes(graphs.output, *scoring)

    @property
    def cache_bytes(self) -> int:
        cache, vocabulary = self.graphs.cache, self.graphs.vocabulary
        places = {"target": self.target_tokens, "source": self.source_tokens, None: 1}
        kept = sum(tensor_bytes(tensor, places[tensor.grows]) for tensor in cache)
        last = sum(tensor_bytes(tensor, 1) for tensor in cache if tensor.last is not None)
        allowed = vocabulary.target_size * ID_BYTES if self.graphs.output is not None else 0
        standard = self.rows * (kept + last + allowed)
        if self.graphs.device_step is None:
            return standard
        # A slot and a source slot for each row, and one of both to spare.
        tables = (self.rows + 1) * self.target_tokens
        return max(standard, (self.rows + 1) * kept + tables * INDEX_BYTES)

    @property
    def work_bytes(self) -> int:
        graphs, size = self.graphs, NUMBER_BYTES[self.graphs.precision.activations]
        copies = 1 if graphs.logits is None else 2  # one to be asked for
        logits = self.rows * graphs.vocabulary.target_size * (copies * size + 2 * FLOAT_BYTES)
        kept = sum(tensor_bytes(tensor, 1) for tensor in graphs.cache if tensor.start is not None)
        tokens, workspace = max(BATCH_TOKENS, self.source_tokens), 0
        if graphs.device_step is not None and graphs.device_step.encoder is not None:
            tokens = packed_tokens(self.source_tokens)
            workspace = tokens * (graphs.width * size + kept + FED_BYTES)
        encoder = tokens * (graphs.encoder_numbers * size + 2 * kept) + workspace
        return logits + encoder + 2 * MOVED_BYTES + RUNTIME_BYTES

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.cache_bytes + self.work_bytes + self.besides_bytes


def packed_tokens(source_tokens: int) -> int:
    """Most of a run of the encoder for GPUs, with those that fill it up: a power of two."""
    return 1 << (max(BATCH_TOKENS, source_tokens) - 1).bit_length()


def most_rows(load: Load, available_bytes: int) -> int:
    """Rows of the load's lengths that fit, 0 if not even one."""
    return most_that_fit(lambda rows: replace(load, rows=rows).total_bytes, load.rows, available_bytes)


def most_tokens(load: Load, available_bytes: int) -> int:
    """Source and target tokens, of each so many, for which all rows of the load fit, 0 if none."""
    longest = min(load.source_tokens, load.target_tokens)
    return most_that_fit(
        lambda n: replace(load, source_tokens=n, target_tokens=n).total_bytes, longest, available_bytes
    )


def most_that_fit(bytes_of: Callable[[int], int], most: int, available_bytes: int) -> int:
    """The largest number up to `most` that takes no more bytes than there are, 0 if none."""
    return bisect_right(range(1, most + 1), available_bytes, key=bytes_of)


def _weight_bytes(*graphs: GraphFile | None) -> int:
    return sum(graph.weight_bytes for graph in graphs if graph is not None)


def tensor_bytes(tensor: CacheTensor, places: int) -> int:
    """Of a row with so many places."""
    return prod(tensor.shape(1, places)) * NUMBER_BYTES[tensor.precision]
