"""A model that is an encoder alone, on our own operators: one session, shared by all workers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.devices.session import CPU, Device, open_on_cpu
from engine.errors import KernelsRefused
from engine.host.encoded import EncodedText, NoCache
from engine.host.together import same_alone
from engine.logits.target_graphs import TargetGraphs
from engine.native.encoder import PACKED, encode, run_tokens
from engine.native.library import matching
from engine.niceness import AT_ONCE, Pace
from kernels.library import Library
from models.package import signature
from models.package.declared.graphs import NativeGraphs
from models.package.graph_files import GraphFiles


class NativeEncoder:
    """A `Decoder` that decodes nothing."""

    gives_logits = False

    def __init__(
        self, graphs: GraphFiles, native: NativeGraphs, library: Library, source_capacity: int, pace: Pace = AT_ONCE
    ) -> None:
        """Loads the graph. Sources have at most so many tokens."""
        self._library = library
        self.row_tokens = source_capacity
        self.given_targets = TargetGraphs(graphs, CPU)
        self._spec = graphs.spec
        [self._session] = open_on_cpu([graphs.contents().graph(native.encoder.file)], library.path, pace)

    @classmethod
    def open(cls, graphs: GraphFiles, source_capacity: int, pace: Pace = AT_ONCE) -> Self:
        """Raises KernelsRefused where package and library have nothing for each other, or packing changes bits."""
        native, library = matching(graphs)
        try:
            encoder = cls(graphs, native, library, source_capacity, pace)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            raise KernelsRefused(f"the native graph does not load: {error}") from error
        if not same_alone(encoder._states, graphs.spec.vocabulary.source_size, source_capacity, pace):
            raise KernelsRefused(PACKED)
        return encoder

    @property
    def device(self) -> Device:
        """What it runs on."""
        return replace(CPU, kernels=self._library.isa)

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[EncodedText]:
        """Runs the encoder on sources, the end tokens included."""
        return [EncodedText(hidden) for [hidden] in self._states(sources)]

    def open_cache(self, rows: int) -> NoCache:
        """Rows that nothing is decoded in."""
        return NoCache()

    def close(self) -> None:
        """Nothing outlives it."""

    def _states(self, sources: Sequence[Sequence[int]]) -> Iterator[list[NDArray[np.float32]]]:
        """Hidden states [tokens, width] of every source."""
        most = run_tokens(self._spec.precision)
        return encode(self._session, sources, most, outputs=(signature.HIDDEN,), spec=self._spec)
