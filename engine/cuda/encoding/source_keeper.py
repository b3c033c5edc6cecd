"""Puts keys and values of sources, as the encoder for GPUs gives them, into the cache: engine/cuda/graphs/keep.onnx."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.cuda.graphs import KEEP
from engine.cuda.runtime import Block, DeviceRuntime, Tensor
from engine.devices.session import run_options
from models.package.declared.elements import FLOAT16, INT32

NUMBER_BYTES = 2
"""Packages with such an encoder are of fp16."""


class SourceKeeper:
    """The graph, which has one node."""

    def __init__(self, runtime: DeviceRuntime, library: Path) -> None:
        """`library`: of the operator. Raises DeviceError."""
        self._runtime, self._options = runtime, run_options()
        self._session = runtime.open_session(KEEP, library=library)

    def close(self) -> None:
        """Drops the session."""
        self._session = None

    def keep(
        self, cross: Tensor, firsts: Sequence[int], lengths: Sequence[int], block: Block, slots: Sequence[int]
    ) -> None:
        """Enqueues the copy of sources into slots of a block, all in one run.

        cross: [tokens, tensors * heads * head_dim]; firsts, lengths: where in it each source is
        """
        sources = len(slots)
        sent = self._runtime.outbox.send(np.array([firsts, lengths, slots], np.int32))
        shape = block.tensors, block.rows, block.heads, block.places, block.slot_bytes // NUMBER_BYTES
        cache = FLOAT16, shape, block.address
        inputs: dict[str, Tensor] = {"cross": cross, "cache": cache} | {
            name: (INT32, (sources,), sent + index * sources * 4)
            for index, name in enumerate(("firsts", "lengths", "slots"))
        }
        binding = self._runtime.binding(self._session, inputs, {"kept": cache})
        self._session.run_with_iobinding(binding, self._options)
