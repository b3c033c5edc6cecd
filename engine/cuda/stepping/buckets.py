"""The decoder graph, bound to a cache and a lane, for steps of several sizes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from engine.cuda.blocks import CacheBlocks
from engine.cuda.captured import captured_options
from engine.cuda.lanes.lane import Lane
from engine.cuda.output import CudaOutput
from engine.cuda.placing.placement import Placement
from engine.cuda.runtime import DeviceRuntime, Tensor
from models.package import signature
from models.package.declared.elements import FLOAT, INT32, INT64
from models.package.declared.graphs import GraphsSpec
from models.package.declared.tensors import CacheTensor

FEW_CANDIDATES = 8
"""Enough for greedy search and beams of 4. A step that needs more takes the most there are."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A step of so many rows that finds so many candidates of each."""

    rows: int
    k: int
    session: ort.InferenceSession
    binding: ort.IOBinding
    options: ort.RunOptions

    def run(self) -> None:
        """Enqueues the step."""
        self.session.run_with_iobinding(self.binding, self.options)


class StepGraph:
    """The decoder graph over rows of a cache.

    A bucket's addresses never change: with CUDA graphs, it is one graph. Some of them are of this object.
    """

    def __init__(
        self,
        runtime: DeviceRuntime,
        session: ort.InferenceSession,
        spec: GraphsSpec,
        blocks: CacheBlocks,
        placement: Placement,
        output: CudaOutput | None,
    ) -> None:
        """`output`: with a shortlist."""
        self._runtime, self._session, self._blocks, self._output = runtime, session, blocks, output
        self._placement = placement
        self.most_candidates = spec.most_candidates
        self._ranks = runtime.constant(np.arange(self.most_candidates))

    def bucket(self, lane: Lane, rows: int, k: int, besides: Mapping[str, Tensor] | None = None) -> Bucket:
        """A step in this lane, of this size. One that gives something `besides` is rare, and is not captured."""
        runtime = self._runtime
        outputs = self._outputs(lane, rows, k) | dict(besides or {})
        binding = runtime.binding(self._session, self._inputs(lane, rows, k), outputs)
        for name, scalar in self._placement.scalars.items():
            binding.bind_input(name, "cpu", 0, INT32, (), scalar.ctypes.data)
        captured = runtime.device.cuda_graphs and not besides
        return Bucket(rows, k, self._session, binding, captured_options(captured))

    def _inputs(self, lane: Lane, rows: int, k: int) -> dict[str, Tensor]:
        """Those that lie on the device."""
        inputs: dict[str, Tensor] = {
            "ids": (INT64, (rows,), lane.feed.ids),
            "positions": (INT32, (rows,), lane.feed.positions),
            "source_last": (INT32, (rows,), lane.feed.source_last),
            "ranks": (INT64, (k,), self._ranks),
        }
        past = {tensor.past: place for tensor, place in self._cached(rows)}
        return inputs | self._placement.inputs(lane.feed, rows) | past | self._choice(rows)

    def _choice(self, rows: int) -> dict[str, Tensor]:
        """What a graph takes besides, with a shortlist."""
        allowed = self._blocks.allowed
        if self._output is None or allowed is None:
            return {}
        return self._output.rows | {signature.ALLOWED: (INT64, (rows, allowed.places), allowed.address)}

    def _outputs(self, lane: Lane, rows: int, k: int) -> dict[str, Tensor]:
        ids, log_probs = signature.DECODER_OUTPUTS
        return {ids: (INT64, (rows, k), lane.candidates), log_probs: (FLOAT, (rows, k), lane.log_probs(rows, k))} | {
            tensor.present: place for tensor, place in self._cached(rows) if tensor.written
        }

    def _cached(self, rows: int) -> list[tuple[CacheTensor, Tensor]]:
        """Every cache tensor with its memory."""
        cached = self._placement.cached(rows)
        return [place for block in self._blocks.tensors for place in block.bound(cached)]


def row_buckets(rows: int) -> list[int]:
    """1, 2, 4, 8, ... and `rows`."""
    return [*(1 << power for power in range((rows - 1).bit_length())), rows]
