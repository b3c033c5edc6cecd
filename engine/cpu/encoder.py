"""A model that is an encoder alone, on standard operators of ONNX Runtime: one session, shared by all workers."""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cpu.packs import encode_packed
from engine.devices.session import CPU, Device, open_session
from engine.encoded import EncodedText, NoCache
from engine.logits.target_graphs import TargetGraphs
from models.package.graph_files import GraphFiles

log = logging.getLogger(__name__)

CHECKED = (11, 3, 7, 10)
"""Tokens of the sources that are packed at the start, to see that it changes nothing."""


class CpuEncoder:
    """A `Decoder` that decodes nothing."""

    gives_logits = False

    def __init__(self, graphs: GraphFiles, source_capacity: int) -> None:
        """Loads the packed graph. Sources have at most so many tokens."""
        assert graphs.spec.packed_encoder is not None
        self.row_tokens = source_capacity
        self.given_targets = TargetGraphs(graphs, CPU)
        self._spec = graphs.spec
        self._session = open_session(graphs.contents().graph(graphs.spec.packed_encoder.file), CPU)
        size = graphs.spec.vocabulary.source_size
        self._together = True
        self._together = self._packs_well([range(min(n, size, source_capacity)) for n in CHECKED])

    @property
    def device(self) -> Device:
        """What it runs on."""
        return CPU

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[EncodedText]:
        """Runs the encoder on sources, the end tokens included. They have no targets that tokens are named for."""
        if not self._together:
            return [EncodedText(hidden) for source in sources for _, hidden in self._encode([source])]
        found = dict(self._encode(sources))
        return [EncodedText(found[index]) for index in range(len(sources))]

    def _encode(self, sources: Sequence[Sequence[int]]) -> Iterator[tuple[int, NDArray[np.floating]]]:
        return encode_packed(self._session, sources, self._spec.width, self._spec)

    def _packs_well(self, sources: Sequence[Sequence[int]]) -> bool:
        """Whether sources have the same bits alone: that rests on kernels of ONNX Runtime that do not promise it."""
        together = [source.hidden().tobytes() for source in self.encode(sources)]
        well = together == [self.encode([source])[0].hidden().tobytes() for source in sources]
        if not well:
            log.warning("texts have other bits packed than alone on this processor: each is encoded alone, slowly")
        return well

    def open_cache(self, rows: int) -> NoCache:
        """Rows that nothing is decoded in."""
        return NoCache()

    def close(self) -> None:
        """Nothing outlives it."""
