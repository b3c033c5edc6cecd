"""The decoder on ONNX Runtime: two sessions, shared by all engines, and a preallocated KV cache for each engine."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.cpu.allowed import AllowedTokens, OutputLayer
from engine.cpu.kv_buffer import KVBuffer
from engine.decoder import Ask, Found
from engine.devices.session import CPU, Device, open_session
from models.config import ModelConfig
from models.package import signature
from models.package.shortlist import ShortlistedOutput
from models.package.signature import CacheTensor, Kind

DTYPES: dict[str, type[np.floating]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
"""Of keys and values, by what ONNX Runtime calls them."""


class CpuSource:
    """An encoded source: its hidden states and its cross-attention keys and values, as the encoder graph gave them."""

    def __init__(
        self,
        hidden: NDArray[np.floating],
        cross: Sequence[NDArray[np.floating]],
        allowed: NDArray[np.int64] | None = None,
    ) -> None:
        self._hidden = hidden
        self.cross = cross
        """Key, value of layer 0, key, value of layer 1, ...: each [1, heads, source, head_dim]."""
        self.allowed = allowed
        """The tokens that its target may have, if the package has a shortlist."""

    @property
    def length(self) -> int:
        """Tokens of the source."""
        return int(self._hidden.shape[1])

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: only its own."""
        return self.length

    def mean(self) -> NDArray[np.float32]:
        """Mean of the last hidden states over the source tokens [width]."""
        mean: NDArray[np.float32] = self._hidden[0].mean(axis=0, dtype=np.float32)
        return mean


class CpuDecoder:
    """A model on the CPU provider.

    One thread runs a step from beginning to end: engines, not kernels, share out the cores. The sessions are shared
    because weights that ONNX Runtime has repacked for its matrix products are then in memory, and in cache, once.
    """

    def __init__(
        self,
        encoder: Path,
        decoder: Path,
        config: ModelConfig,
        source_capacity: int,
        target_capacity: int,
        choice: ShortlistedOutput | None = None,
    ) -> None:
        """Loads the graphs. Rows have room for so many source tokens and so many target tokens.

        choice: of a package with a shortlist
        """
        self.config = config
        self.source_capacity, self.target_capacity = source_capacity, target_capacity
        self._encoder, self._decoder = (open_session(graph, CPU) for graph in (encoder, decoder))
        self._outputs = signature.encoder_outputs(config)
        self._shortlist, self._output = None, None
        if choice is not None:
            self._shortlist = choice.shortlist
            self._output = OutputLayer(choice.graph, config.target_vocab_size)

    @property
    def device(self) -> Device:
        """What it runs on."""
        return CPU

    @property
    def row_tokens(self) -> int:
        """Source and target tokens that a row has room for."""
        return self.source_capacity + self.target_capacity

    def encode(self, sources: Sequence[Sequence[int]]) -> list[CpuSource]:
        """Runs the encoder on sources, those of equal length together.

        Not all together, because padding a source to the length of others would change the order in which its attention
        sums, and so its last bits.
        """
        found: dict[int, CpuSource] = {}
        of_length: dict[int, list[int]] = {}
        for index, source in enumerate(sources):
            of_length.setdefault(len(source), []).append(index)
        for indices in of_length.values():
            found |= zip(indices, self._encode_equal([sources[index] for index in indices]), strict=True)
        return [found[index] for index in range(len(sources))]

    def open_cache(self, rows: int) -> "CpuCache":
        """A running batch with room for so many rows."""
        allowed = None if self._output is None else AllowedTokens(self._output, rows)
        return CpuCache(self._decoder, self.config, rows, self.source_capacity, self.target_capacity, allowed)

    def close(self) -> None:
        """Nothing outlives it."""

    def _encode_equal(self, sources: Sequence[Sequence[int]]) -> Iterator[CpuSource]:
        """Runs the encoder on sources of one length."""
        ids = np.array(sources, np.int64)
        lengths = np.full(len(sources), ids.shape[1], np.int32)
        hidden, *cross = self._encoder.run(self._outputs, {"ids": ids, "lengths": lengths})
        for index, source in enumerate(sources):
            one = slice(index, index + 1)
            allowed = None if self._shortlist is None else self._shortlist.allowed(source)
            yield CpuSource(hidden[one], [tensor[one] for tensor in cross], allowed)


class CpuCache:
    """The running batch, in buffers that the decoder graph reads and writes in place."""

    def __init__(
        self,
        session: ort.InferenceSession,
        config: ModelConfig,
        rows: int,
        source_capacity: int,
        target_capacity: int,
        allowed: AllowedTokens | None = None,
    ) -> None:
        self._session, self._allowed = session, allowed
        self._self_tensors, self._cross_tensors, self._state_tensors = (
            signature.cache_tensors(config, kind) for kind in (Kind.SELF, Kind.CROSS, Kind.STATE)
        )
        dtype = _cache_dtype(session, self._cross_tensors[0])
        shape = rows, config.decoder_heads, config.decoder_head_dim
        self._self = KVBuffer(len(self._self_tensors), *shape, target_capacity, dtype)
        self._cross = KVBuffer(len(self._cross_tensors), *shape, source_capacity, dtype)
        self._last = np.zeros((len(self._cross_tensors), rows, 1, config.width), dtype)
        self._states = np.zeros((len(self._state_tensors), rows, config.width), dtype)
        self._ids, self._positions = np.zeros(rows, np.int64), np.zeros(rows, np.int32)
        self._source_last = np.zeros(rows, np.int32)
        self._total, self._source_total = np.zeros((), np.int32), np.zeros((), np.int32)
        self._ranks = np.arange(min(signature.MAX_CANDIDATES, config.target_vocab_size))
        self._sentences = np.zeros(rows, np.int64)
        """Which sentence's source a row holds, live or not, counted from 1. 0: none."""
        self._joined = 0
        self._live = 0
        self._bindings: dict[tuple[int, int], tuple[ort.IOBinding, Found]] = {}
        self._begun: tuple[ort.IOBinding, Found]

    @property
    def live(self) -> int:
        """How many rows are in use."""
        return self._live

    def join(self, source: CpuSource) -> int:
        """Starts a row for a source, at position 0."""
        row, length = self._live, source.length
        self._fit(self._cross, max(length, self._longest_source()))
        for tensor, last, encoded in zip(self._cross.array, self._last, source.cross, strict=True):
            tensor[row, :, :length] = encoded[0]
            last[row, 0] = encoded[0, :, -1].reshape(-1)
        if self._allowed is not None and source.allowed is not None and self._allowed.put(row, source.allowed):
            self._forget_memory()
        self._states[:, row] = 0
        self._source_last[row] = length - 1
        self._positions[row] = 0
        self._joined += 1
        self._sentences[row] = self._joined
        self._live += 1
        return row

    def begin_step(self, token_ids: Sequence[int], ask: Ask) -> None:
        """Starts a step that feeds one token to each live row and finds what is asked of each."""
        live = self._live
        total = int(self._positions[:live].max()) + 1
        self._fit(self._self, total)
        self._ids[:live] = token_ids
        self._total[...] = total
        self._source_total[...] = self._longest_source()
        self._begun = self._bind(live, min(ask.best, len(self._ranks)))

    def end_step(self) -> Found:
        """Computes the step that was begun: the processor that would compute it meanwhile is the caller's own."""
        binding, candidates = self._begun
        self._session.run_with_iobinding(binding)
        self._positions[: self._live] += 1
        if self._allowed is None:
            return candidates
        return Found(self._allowed.token_ids(candidates.token_ids), candidates.log_probs)

    def take(self, parents: Sequence[int]) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes copied."""
        copied = sum(self._copy(parent, row) for row, parent in enumerate(parents) if row != parent)
        self._live = len(parents)
        return copied

    def _longest_source(self) -> int:
        """Tokens of the longest source in the batch."""
        return int(self._source_last[: self._live].max(initial=-1)) + 1

    def _fit(self, buffer: KVBuffer, needed: int) -> None:
        if buffer.fit(needed, self._live):
            self._forget_memory()

    def _forget_memory(self) -> None:
        """A buffer lies elsewhere, and holds what it did of live rows only."""
        self._bindings.clear()
        self._sentences[self._live :] = 0

    def _copy(self, parent: int, row: int) -> int:
        copied = self._self.copy(parent, row, self._positions[parent])
        self._states[:, row] = self._states[:, parent]
        copied += self._states[:, row].nbytes
        self._positions[row] = self._positions[parent]
        if self._sentences[row] != self._sentences[parent]:  # the beams of a sentence have its source already
            copied += self._cross.copy(parent, row, self._source_last[parent] + 1)
            self._last[:, row] = self._last[:, parent]
            if self._allowed is not None:
                self._allowed.copy(parent, row)
            self._source_last[row] = self._source_last[parent]
            self._sentences[row] = self._sentences[parent]
        return copied

    def _bind(self, rows: int, k: int) -> tuple[ort.IOBinding, Found]:
        """The binding of the first `rows` rows of every buffer. Made once: binding takes 86 us, running it 4."""
        if (rows, k) not in self._bindings:
            self._bindings[rows, k] = self._make_binding(rows, k)
        return self._bindings[rows, k]

    def _make_binding(self, rows: int, k: int) -> tuple[ort.IOBinding, Found]:
        candidates = Found(np.zeros((rows, k), np.int64), np.zeros((rows, k), np.float32))
        binding = self._session.io_binding()
        for name, array in self._inputs(rows, k).items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in self._outputs(rows, candidates).items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        return binding, candidates

    def _inputs(self, rows: int, k: int) -> dict[str, NDArray[Any]]:
        ids, positions, source_last = (array[:rows] for array in (self._ids, self._positions, self._source_last))
        step: Sequence[NDArray[Any]] = (ids, positions, self._total, source_last, self._source_total, self._ranks[:k])
        last = zip(self._cross_tensors, self._last, strict=True)
        return (
            dict(zip(signature.DECODER_INPUTS, step, strict=True))
            | {tensor.past: buffer[:rows] for tensor, buffer in self._buffers()}
            | {tensor.last: array[:rows] for tensor, array in last}
            | ({} if self._allowed is None else self._allowed.inputs(rows))
        )

    def _outputs(self, rows: int, candidates: Found) -> dict[str, NDArray[Any]]:
        step: Sequence[NDArray[Any]] = (candidates.token_ids, candidates.log_probs)
        return dict(zip(signature.DECODER_OUTPUTS, step, strict=True)) | {
            tensor.present: buffer[:rows] for tensor, buffer in self._buffers()
        }

    def _buffers(self) -> Iterator[tuple[CacheTensor, NDArray[np.floating]]]:
        """Every cache tensor with its memory, which is both its past and its present."""
        yield from zip(self._self_tensors, self._self.array, strict=True)
        yield from zip(self._state_tensors, self._states, strict=True)
        yield from zip(self._cross_tensors, self._cross.array, strict=True)


def _cache_dtype(session: ort.InferenceSession, tensor: CacheTensor) -> type[np.floating]:
    """What keys and values are in a decoder graph."""
    return next(DTYPES[value.type] for value in session.get_inputs() if value.name == tensor.past)
