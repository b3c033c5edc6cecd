"""A step of the native decoder graph, on memory that stays where it is from step to step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.decoder import Found
from engine.devices.session import bind
from engine.native.allowed import AllowedTokens
from engine.native.rows import Rows
from engine.native.slot_memory import SlotMemory
from kernels.library import Library
from kernels.steps import Following, Recording
from models.package import signature
from models.package.declared.graphs import GraphsSpec


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A step of so many rows, and what it fills."""

    run: Callable[[], None]
    """Computes it."""
    best: Found
    following: Following | None = None
    """What makes several such steps. None: they are made by ONNX Runtime."""
    hidden: NDArray[np.float32] | None = None
    """What the output layer takes [rows, width], where more than the best tokens is asked for."""
    query: NDArray[np.float32] | None = None
    """Of the last layer, to the source [rows, heads * head_dim]; likewise."""
    normaliser: NDArray[np.float32] | None = None
    """[rows]; likewise, and where the graph gives it: those of older packages do not."""


class NativeStep:
    """Runs the graph. Bindings are kept by what is asked of how many rows, until memory lies elsewhere."""

    def __init__(
        self,
        library: Library,
        session: ort.InferenceSession,
        spec: GraphsSpec,
        rows: Rows,
        memories: Sequence[SlotMemory],
        allowed: AllowedTokens | None,
    ) -> None:
        self._library, self._session, self._spec = library, session, spec
        self._rows, self._memories, self._allowed = rows, memories, allowed
        self._nodes = sum(len(part.get_nodes()) for part in session.get_provider_graph_assignment_info())
        self._ranks = np.arange(spec.most_candidates)
        self._normalises = any(output.name == signature.NORMALISER for output in session.get_outputs())
        self._bound: dict[tuple[int, int, bool], BoundStep] = {}

    def forget(self) -> None:
        """Memory lies elsewhere."""
        self._bound.clear()

    def known(self, k: int) -> BoundStep | None:
        """A step of as many rows, of which so many candidates and no more are wanted, if there has been one."""
        return self._bound.get((self._rows.live, min(k, len(self._ranks)), False))

    def run(self, k: int, more: bool) -> BoundStep:
        """Computes a step of the live rows: `k` candidates of each, and `more`."""
        wanted = self._rows.live, min(k, len(self._ranks)), more
        if (step := self._bound.get(wanted)) is not None:
            step.run()
        else:
            step = self._bound[wanted] = self._first(*wanted)
        return step

    def _first(self, rows: int, k: int, more: bool) -> BoundStep:
        """Computes the first such step. Later ones are made without ONNX Runtime, where all nodes are ours."""
        best = Found(np.zeros((rows, k), np.int64), np.zeros((rows, k), np.float32))
        widths = self._spec.width, self._spec.query_numbers
        hidden, query = (np.zeros((rows, width), np.float32) if more else None for width in widths)
        normaliser = np.zeros(rows, np.float32) if more and self._normalises else None
        besides = {signature.HIDDEN: hidden, signature.CROSS_QUERY: query, signature.NORMALISER: normaliser}
        outputs = self._outputs(best) | {name: array for name, array in besides.items() if array is not None}
        run = partial(self._session.run_with_iobinding, bind(self._session, self._inputs(rows, k), outputs))
        recording = Recording(self._library, run, outputs.values())
        if recording.nodes != self._nodes:
            return BoundStep(run, best, None, hidden, query, normaliser)
        return BoundStep(recording.replay, best, self._rows.following(recording, best), hidden, query, normaliser)

    def _inputs(self, rows: int, k: int) -> dict[str, NDArray[Any]]:
        of = self._rows
        arrays: Sequence[NDArray[Any]] = [of.ids, of.positions, of.slots, of.source_slots, of.source_lengths]
        step = [*(array[:rows] for array in arrays), self._ranks[:k]]
        inputs = dict(zip(signature.NATIVE_DECODER_INPUTS, step, strict=True))
        if self._allowed is not None:
            inputs[signature.ALLOWED] = self._allowed.array[:rows]
        return inputs | self._tensors("past", self._memories)

    def _outputs(self, best: Found) -> dict[str, NDArray[Any]]:
        step: Sequence[NDArray[Any]] = best.token_ids, best.log_probs
        written = [memory for memory in self._memories if memory.owner == "hypothesis"]
        return dict(zip(signature.DECODER_OUTPUTS, step, strict=True)) | self._tensors("present", written)

    def _tensors(self, role: str, memories: Sequence[SlotMemory]) -> dict[str, NDArray[Any]]:
        """Every slot of every tensor, by the name of its input ("past") or output ("present")."""
        return {
            tensor.past if role == "past" else tensor.present: array
            for memory in memories
            for tensor, array in memory.bound(len(self._rows.slots))
        }
