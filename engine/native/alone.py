"""A model that is an encoder alone, on our own operators: one session, shared by all workers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.devices.session import CPU, Device, open_session
from engine.encoded import EncodedText, NoCache
from engine.errors import KernelsRefused
from engine.logits.target_graphs import TargetGraphs
from engine.native.encoder import encode
from engine.native.library import matching
from kernels.library import Library
from models.package import signature
from models.package.declared.graphs import NativeGraphs, VectorProbe
from models.package.graph_files import GraphFiles

TOLERANCE = 0.05
"""Of a probe's largest number. Processors differ by roundings of fp32, which move a number to the next of its 8 bits
now and then; a wrong kernel is off by as much as the numbers are large."""


class NativeEncoder:
    """A `Decoder` that decodes nothing."""

    gives_logits = False

    def __init__(self, graphs: GraphFiles, native: NativeGraphs, library: Library, source_capacity: int) -> None:
        """Loads the graph. Sources have at most so many tokens."""
        self._library = library
        self.row_tokens = source_capacity
        self.given_targets = TargetGraphs(graphs, CPU)
        self._spec = graphs.spec
        self._session = open_session(graphs.contents().graph(native.encoder.file), CPU, library=library.path)

    @classmethod
    def open(cls, graphs: GraphFiles, source_capacity: int) -> Self:
        """Raises KernelsRefused where the package or the library has nothing for the other, or a probe is wrong."""
        native, library = matching(graphs)
        try:
            encoder = cls(graphs, native, library, source_capacity)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            raise KernelsRefused(f"the native graph does not load: {error}") from error
        for number, probe in enumerate(graphs.spec.vector_probes):
            if len(probe.source_ids) <= source_capacity:
                encoder._check(number, probe)
        return encoder

    @property
    def device(self) -> Device:
        """What it runs on."""
        return replace(CPU, kernels=self._library.isa)

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[EncodedText]:
        """Runs the encoder on sources, the end tokens included."""
        found = encode(self._session, sources, outputs=(signature.HIDDEN,), spec=self._spec)
        return [EncodedText(hidden) for [hidden] in found]

    def open_cache(self, rows: int) -> NoCache:
        """Rows that nothing is decoded in."""
        return NoCache()

    def close(self) -> None:
        """Nothing outlives it."""

    def _check(self, number: int, probe: VectorProbe) -> None:
        """Raises KernelsRefused."""
        [found] = self.encode([probe.source_ids])
        expected = np.array(probe.numbers)
        error = np.abs(first_numbers(found.hidden(), len(expected)) - expected).max()
        if not error <= TOLERANCE * np.abs(expected).max():  # NaN is above it, too
            raise KernelsRefused(
                f"probe {number} is off by {error:.3g}, with numbers up to {np.abs(expected).max():.3g}"
            )


def first_numbers(hidden: NDArray[np.float32], count: int) -> NDArray[np.float64]:
    """What a probe knows of hidden states [tokens, width]: the first numbers of their mean."""
    mean: NDArray[np.float64] = hidden.mean(axis=0, dtype=np.float64)[:count]
    return mean
