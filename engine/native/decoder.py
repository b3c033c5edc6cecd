"""The decoder on the graphs of our own operators: two sessions, shared by all workers, and a cache for each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.devices.session import CPU, Device, open_on_cpu
from engine.devices.shapes import check_fp32, check_shapes
from engine.errors import KernelsRefused
from engine.host.together import same_alone
from engine.logits.graph import LogitsGraph
from engine.logits.target_graphs import TargetGraphs
from engine.native.cache import SlotCache
from engine.native.encoder import PACKED, NativeSource, encode, run_tokens
from engine.native.library import matching
from engine.native.named import NamedTokens
from engine.niceness import AT_ONCE, Pace
from kernels.library import Counters, Library
from models.package import signature
from models.package.declared.graphs import NativeGraphs
from models.package.graph_files import GraphFiles


class NativeDecoder:
    """A model on the CPU. One thread runs a step from beginning to end; many may run steps at once."""

    def __init__(
        self,
        graphs: GraphFiles,
        native: NativeGraphs,
        library: Library,
        source_capacity: int,
        target_capacity: int,
        pace: Pace = AT_ONCE,
    ) -> None:
        """Loads the graphs. Rows have room for so many source tokens and so many target tokens."""
        self.spec, self._native, self._library = graphs.spec, native, library
        self.source_capacity, self.target_capacity = source_capacity, target_capacity
        contents = graphs.contents()
        assert native.decoder is not None
        parts = [contents.graph(graph.file) for graph in (native.encoder, native.decoder)]
        self._encoder, self._decoder = open_on_cpu(parts, library.path, pace)
        besides = {
            signature.HIDDEN: ("rows", graphs.spec.width),
            signature.CROSS_QUERY: ("rows", graphs.spec.query_numbers),
            signature.NORMALISER: ("rows",),
        }
        check_shapes((self._encoder, self._decoder), graphs.spec, native.cache, besides)
        check_fp32(self._decoder, (signature.HIDDEN, signature.CROSS_QUERY), may_lack=[signature.NORMALISER])
        self._shortlist, self._logits = graphs.shortlist, LogitsGraph(graphs)
        self._named = NamedTokens(graphs, native, library)
        self.given_targets = TargetGraphs(graphs, CPU)

    @classmethod
    def open(cls, graphs: GraphFiles, source_capacity: int, target_capacity: int, pace: Pace = AT_ONCE) -> Self:
        """Raises KernelsRefused.

        That is where the package has no graphs for the library, the library is none for here, or packing changes bits.
        """
        native, library = matching(graphs)
        try:
            decoder = cls(graphs, native, library, source_capacity, target_capacity, pace)
        except Exception as error:  # the errors of ONNX Runtime have nothing else in common
            raise KernelsRefused(f"the native graphs do not load: {error}") from error
        if not same_alone(partial(encode, decoder._encoder), graphs.spec.vocabulary.source_size, source_capacity, pace):
            raise KernelsRefused(PACKED)
        return decoder

    @property
    def device(self) -> Device:
        """What it runs on."""
        return replace(CPU, kernels=self._library.isa, has_slots=True)

    @property
    def row_tokens(self) -> int:
        """Source and target tokens that a row has room for."""
        return self.source_capacity + self.target_capacity

    @property
    def gives_logits(self) -> bool:
        """Whether whole rows of scores can be asked for."""
        return self.spec.logits is not None and self.spec.logits.graph is not None

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[NativeSource]:
        """Runs the encoder on sources, the end tokens included. named: see `Decoder`."""
        allowed = repeat(None) if self._shortlist is None else map(self._allowed, sources, named or repeat(()))
        found = encode(self._encoder, sources, run_tokens(self.spec.precision))
        pairs = zip(found, allowed, strict=False)
        return [NativeSource(hidden, cross, ids) for [hidden, cross], ids in pairs]

    def open_cache(self, rows: int) -> SlotCache:
        """A running batch with room for so many rows."""
        capacities, graphs = (self.source_capacity, self.target_capacity), (self._logits, self._named)
        shortlisted = self._shortlist is not None
        return SlotCache(self._library, self._decoder, self.spec, self._native, rows, *capacities, *graphs, shortlisted)

    @property
    def counters(self) -> Callable[[], Counters]:
        """What reads what the operators have counted, for whichever model of the process."""
        return self._library.counters

    def close(self) -> None:
        """Nothing outlives it."""

    def _allowed(self, source: Sequence[int], named: Sequence[int]) -> NDArray[np.int32]:
        assert self._shortlist is not None
        return self._shortlist.allowed(source, named).astype(np.int32)
