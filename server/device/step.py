"""A decoder step on a device: what goes in, the graph, what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from models import signature
from models.config import ModelConfig
from models.signature import Kind
from server.decoder import Candidates
from server.device.move_graph import INT64
from server.device.runtime import FLOAT, INT32, Block, DeviceRuntime, Precision, Tensor
from server.device.session import NO_GRAPH, DeviceError, run_options

FEW_CANDIDATES = 8
"""Enough for greedy search and beams of 4. A step that needs more takes the most there are."""

GRAPH_IDS = count(1)
"""Of captured CUDA graphs: a session keeps those of all its caches apart by them."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A step of so many rows that finds so many candidates of each."""

    rows: int
    k: int
    binding: ort.IOBinding
    options: ort.RunOptions


class DeviceStep:
    """The decoder graph over the first rows of a cache.

    Every bucket of rows and candidates has a binding with addresses that never change: with CUDA graphs, one graph.
    """

    def __init__(
        self,
        runtime: DeviceRuntime,
        session: ort.InferenceSession,
        config: ModelConfig,
        precision: Precision,
        blocks: tuple[Block, Block, Block],
    ) -> None:
        """`blocks`: self-attention, cross-attention, and the last places of the sources."""
        self._runtime, self._session, self._config, self._precision = runtime, session, config, precision
        self._self, self._cross, self._last = blocks
        self._rows = self._self.rows
        most = min(signature.MAX_CANDIDATES, config.target_vocab_size)
        # Scalars that ONNX Runtime reads on the host. Constant, so that a captured graph can have them: how far a row
        # attends is decided by its position, on the device.
        self._total, self._source_total = (np.array(block.places, np.int32) for block in (self._self, self._cross))
        self._feed = runtime.allocate(self._rows * 16)
        runtime.transfers.clear(self._feed.address, self._feed.size_bytes)  # warm_up decodes what lies there
        self._staged_feed = runtime.transfers.staging(self._rows * 16)
        self._ranks = runtime.constant(np.arange(most))
        self._answer = runtime.allocate(self._rows * most * 12)
        self._staged_answer = runtime.transfers.staging(self._rows * most * 12)
        self._buckets = {
            (rows, k): self._bucket(rows, k)
            for rows in row_buckets(self._rows)
            for k in sorted({min(FEW_CANDIDATES, most), most})
        }
        self._begun: tuple[Bucket, int, int]

    def warm_up(self) -> None:
        """Runs every bucket once, the largest first, so that all memory that steps need is taken.

        CUDA graphs are captured thereby. Raises DeviceError where they cannot be.
        """
        try:
            for bucket in reversed(self._buckets.values()):
                self._session.run_with_iobinding(bucket.binding, bucket.options)
            self._runtime.transfers.wait()
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            if not self._runtime.device.cuda_graphs:
                raise
            raise DeviceError(f"CUDA graphs cannot be captured ({error}); start with --no-cuda-graphs") from error

    def begin(
        self, token_ids: Sequence[int], positions: NDArray[np.int32], source_last: NDArray[np.int32], k: int
    ) -> None:
        """Starts a step of the rows that have a token. `source_last`: of all rows of the cache, live or not."""
        live = len(token_ids)
        bucket = self._fitting(live, k)
        rows = self._rows
        feed = self._staged_feed
        ids, at, last = feed[: 8 * rows], feed[8 * rows : 12 * rows], feed[12 * rows :]
        feed[:] = 0
        ids.view(np.int64)[:live] = token_ids
        at.view(np.int32)[:live] = positions
        last.view(np.int32)[:] = source_last
        transfers = self._runtime.transfers
        transfers.upload(feed, self._feed.address)
        self._session.run_with_iobinding(bucket.binding, bucket.options)
        transfers.download(self._answer.address, self._staged_answer[: bucket.rows * bucket.k * 12])
        self._begun = bucket, live, k

    def end(self) -> Candidates:
        """Waits for the step. The arrays are overwritten by the next."""
        self._runtime.transfers.wait()
        bucket, live, k = self._begun
        numbers = bucket.rows * bucket.k
        ids = self._staged_answer[: 8 * numbers].view(np.int64).reshape(bucket.rows, bucket.k)
        log_probs = self._staged_answer[8 * numbers : 12 * numbers].view(np.float32).reshape(bucket.rows, bucket.k)
        return Candidates(ids[:live, :k], log_probs[:live, :k])

    def _fitting(self, live: int, k: int) -> Bucket:
        """The smallest bucket for so many rows and candidates, or all candidates that there are."""
        most = max(k for _, k in self._buckets)
        return next(bucket for (rows, found), bucket in self._buckets.items() if rows >= live and found >= min(k, most))

    def _bucket(self, rows: int, k: int) -> Bucket:
        runtime = self._runtime
        binding = runtime.binding(self._session, self._inputs(rows, k), self._outputs(rows, k))
        for name, scalar in (("total", self._total), ("source_total", self._source_total)):
            binding.bind_input(name, "cpu", 0, INT32, (), scalar.ctypes.data)
        return Bucket(rows, k, binding, run_options(next(GRAPH_IDS) if runtime.device.cuda_graphs else NO_GRAPH))

    def _inputs(self, rows: int, k: int) -> dict[str, Tensor]:
        """Of a step of `rows` rows, all that lie on the device."""
        feed, element, width = self._feed.address, self._precision.element, self._config.width
        inputs: dict[str, Tensor] = {
            "ids": (INT64, (rows,), feed),
            "positions": (INT32, (rows,), feed + 8 * self._rows),
            "source_last": (INT32, (rows,), feed + 12 * self._rows),
            "ranks": (INT64, (k,), self._ranks),
        }
        last = {
            tensor.last: (element, (rows, 1, width), address)
            for tensor, address in zip(self._tensors(Kind.CROSS), self._last.tensor_addresses(), strict=True)
        }
        return inputs | last | {tensor.past: place for tensor, place in self._cached(rows)}

    def _outputs(self, rows: int, k: int) -> dict[str, Tensor]:
        ids, log_probs = signature.DECODER_OUTPUTS
        answer = self._answer.address
        return {ids: (INT64, (rows, k), answer), log_probs: (FLOAT, (rows, k), answer + 8 * rows * k)} | {
            tensor.present: place for tensor, place in self._cached(rows)
        }

    def _cached(self, rows: int) -> list[tuple[signature.CacheTensor, Tensor]]:
        """Every cache tensor with its memory, which is both its past and its present."""
        head_dim = self._config.decoder_head_dim
        return [
            (tensor, (self._precision.element, (rows, block.heads, block.places, head_dim), address))
            for kind, block in ((Kind.SELF, self._self), (Kind.CROSS, self._cross))
            for tensor, address in zip(self._tensors(kind), block.tensor_addresses(), strict=True)
        ]

    def _tensors(self, kind: Kind) -> list[signature.CacheTensor]:
        return signature.cache_tensors(self._config, kind)


def row_buckets(rows: int) -> list[int]:
    """1, 2, 4, 8, ... and `rows`."""
    return [*(1 << power for power in range((rows - 1).bit_length())), rows]
