"""A model that is an encoder alone, on standard operators of ONNX Runtime: one session, shared by all workers."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cpu.packs import encode_packed
from engine.devices.session import CPU, Device, open_session
from engine.host.encoded import EncodedText, NoCache
from engine.host.together import same_alone
from engine.logits.target_graphs import TargetGraphs
from models.package.graph_files import GraphFiles

log = logging.getLogger(__name__)


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
        self._together = same_alone(self._states, graphs.spec.vocabulary.source_size, source_capacity)
        if not self._together:  # it rests on kernels of ONNX Runtime that do not promise it
            log.warning("texts have other bits packed than alone on this processor: each is encoded alone, slowly")

    @property
    def device(self) -> Device:
        """What it runs on."""
        return CPU

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[EncodedText]:
        """Runs the encoder on sources, the end tokens included. They have no targets that tokens are named for."""
        packs = [sources] if self._together else [[source] for source in sources]
        return [EncodedText(hidden) for pack in packs for [hidden] in self._states(pack)]

    def _states(self, sources: Sequence[Sequence[int]]) -> list[list[NDArray[np.floating]]]:
        """Hidden states [tokens, width] of every source."""
        found = dict(encode_packed(self._session, sources, self._spec.width, self._spec))
        return [[found[index]] for index in range(len(sources))]

    def open_cache(self, rows: int) -> NoCache:
        """Rows that nothing is decoded in."""
        return NoCache()

    def close(self) -> None:
        """Nothing outlives it."""
