"""A model that is an encoder alone, on ONNX Runtime's CPU provider: one session, shared by all workers."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cpu.packs import encode_packed
from engine.decoder import Ask, Found, TokenIds
from engine.devices.session import CPU, Device, open_session
from engine.target_graphs import TargetGraphs
from models.package.graph_files import GraphFiles

log = logging.getLogger(__name__)

CHECKED = (11, 3, 7, 10)
"""Tokens of the sources that are packed at the start, to see that it changes nothing."""


class EncodedText:
    """An encoded source."""

    def __init__(self, hidden: NDArray[np.floating]) -> None:
        self._hidden = hidden

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: only its own."""
        return len(self._hidden)

    def hidden(self) -> NDArray[np.float32]:
        """The last hidden states of the source tokens [tokens, width]."""
        hidden: NDArray[np.float32] = self._hidden.astype(np.float32, copy=False)
        return hidden


class CpuEncoder:
    """A `Decoder` that decodes nothing."""

    gives_logits = False

    def __init__(self, graphs: GraphFiles, source_capacity: int) -> None:
        """Loads the packed graph. Sources have at most so many tokens."""
        assert graphs.spec.packed_encoder is not None
        self.row_tokens = source_capacity
        self.given_targets = TargetGraphs(graphs, CPU)
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
            return [EncodedText(hidden) for source in sources for _, hidden in encode_packed(self._session, [source])]
        found = dict(encode_packed(self._session, sources))
        return [EncodedText(found[index]) for index in range(len(sources))]

    def _packs_well(self, sources: Sequence[Sequence[int]]) -> bool:
        """Whether sources have the same bits alone: that rests on kernels of ONNX Runtime that do not promise it."""
        together = [source.hidden().tobytes() for source in self.encode(sources)]
        well = together == [self.encode([source])[0].hidden().tobytes() for source in sources]
        if not well:
            log.warning("texts have other bits packed than alone on this processor: each is encoded alone, slowly")
        return well

    def open_cache(self, rows: int) -> "NoCache":
        """Rows that nothing is decoded in."""
        return NoCache()

    def close(self) -> None:
        """Nothing outlives it."""


class NoCache:
    """Rows without a decoder, whose steps take no time and find token 0. Only probes and measurements make any."""

    def __init__(self) -> None:
        self.live = 0

    def join(self, source: EncodedText) -> int:
        """Starts a row."""
        self.live += 1
        return self.live - 1

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        """Does nothing."""

    def end_step(self) -> Found:
        """See the class."""
        return Found(np.zeros((self.live, 1), np.int64), np.zeros((self.live, 1), np.float32))

    def take(self, parents: Sequence[int]) -> int:
        """Leaves so many rows. Copies nothing."""
        self.live = len(parents)
        return 0
