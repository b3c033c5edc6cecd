"""How much device memory a model takes: a formula, to refuse at start what would fail later, with what would fit.

weights    the parameters of both graphs; each session has its own copy of what they share
cache      rows x (keys and values of every decoder layer) x (source + target places + the last source token); a
           recurrence keeps one state for all target places
work       what runs need for a moment, and what an encoder run leaves until it has joined the batch
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from models.config import ModelConfig

BATCH_TOKENS = 2048
"""Most tokens of one encoder run, padding included. More keep no device busier, and only take more memory."""
MOVED_BYTES = 16 << 20
"""Most that one run of the graph that moves rows moves: it lies in memory twice meanwhile."""
ID_BYTES = 8
NUMBER_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Of a number, by the package's `precision`."""
FLOAT_BYTES = 4
RUNTIME_BYTES = 256 << 20
"""Kernels, cuBLAS and cuDNN workspaces, captured graphs. An estimate."""


@dataclass(frozen=True, slots=True)
class Load:
    """A model, and the batch it is to decode."""

    config: ModelConfig
    precision: str
    rows: int
    source_tokens: int
    target_tokens: int
    shortlist: bool = False

    @property
    def weight_bytes(self) -> int:
        config, width = self.config, self.config.width
        tables = config.source_vocab_size + config.target_vocab_size * (1 if config.tie_output else 2)
        tables += 2 * config.max_positions
        encoder = config.encoder_layers * (4 * width + 2 * config.encoder_ffn)
        cell = 2 if config.decoder_cell == "ssru" else 4
        decoder = config.decoder_layers * ((cell + 4) * width + 2 * config.decoder_ffn)
        output = config.target_vocab_size if self.shortlist else 0
        return self._size * width * (tables + encoder + decoder + output)

    @property
    def cache_bytes(self) -> int:
        config = self.config
        target = self.target_tokens * self._kept_bytes
        if config.decoder_cell == "ssru":
            target = config.decoder_layers * config.width * self._size
        allowed = config.target_vocab_size * ID_BYTES if self.shortlist else 0
        return self.rows * ((self.source_tokens + 1) * self._kept_bytes + target + allowed)

    @property
    def work_bytes(self) -> int:
        logits = self.rows * self.config.target_vocab_size * (self._size + 2 * FLOAT_BYTES)
        hidden = 2 * self.config.encoder_ffn + 8 * self.config.width
        tokens = max(BATCH_TOKENS, self.source_tokens)
        return logits + tokens * (hidden * self._size + 2 * self._kept_bytes) + 2 * MOVED_BYTES + RUNTIME_BYTES

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.cache_bytes + self.work_bytes

    @property
    def _size(self) -> int:
        """Bytes of a number."""
        return NUMBER_BYTES[self.precision]

    @property
    def _kept_bytes(self) -> int:
        """Keys and values of one token in every decoder layer."""
        return 2 * self.config.decoder_layers * self.config.width * self._size


def most_rows(load: Load, available_bytes: int) -> int:
    """Rows of the load's lengths that fit, 0 if not even one."""
    return _most(lambda rows: replace(load, rows=rows), load.rows, available_bytes)


def most_tokens(load: Load, available_bytes: int) -> int:
    """Source and target tokens, of each so many, for which all rows of the load fit, 0 if none."""
    longest = min(load.source_tokens, load.target_tokens)
    return _most(lambda n: replace(load, source_tokens=n, target_tokens=n), longest, available_bytes)


def _most(make: Callable[[int], Load], most: int, available_bytes: int) -> int:
    """The largest number up to `most` whose load fits."""
    return bisect_right(range(1, most + 1), available_bytes, key=lambda number: make(number).total_bytes)
