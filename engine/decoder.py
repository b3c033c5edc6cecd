"""The seam between decoding and whatever runs the model. Tests put a decoder here that copies its source."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


class Memory(Protocol):
    """An encoded source, kept where the decoder wants it."""

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: its own, and its share of those that fill up a batch."""
        ...

    def mean(self) -> NDArray[np.float32]:
        """Mean of the last hidden states over the source tokens [width]."""
        ...


M_contra = TypeVar("M_contra", bound=Memory, contravariant=True)
M = TypeVar("M", bound=Memory)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The k most probable next tokens of every live row, best first."""

    token_ids: NDArray[np.int64]
    """[rows, k]"""
    log_probs: NDArray[np.float32]
    """[rows, k]"""


class Cache(Protocol[M_contra]):
    """The running batch: rows 0..live-1, each a hypothesis at its own position.

    A row holds the keys and values of its source and of the target tokens before its position.
    """

    @property
    def live(self) -> int:
        """How many rows are in use."""
        ...

    def join(self, memory: M_contra) -> int:
        """Starts a row for a source, at position 0. Returns its index, which is the old `live`."""
        ...

    def begin_step(self, token_ids: Sequence[int], k: int) -> None:
        """Starts a step that feeds one token to each live row and finds the `k` best next tokens of each.

        A device may compute it while the caller does something else. Nothing but `end_step` may follow.
        """
        ...

    def end_step(self) -> Candidates:
        """Waits for the step that was begun. Every row has advanced by one position.

        The arrays of the answer are overwritten by the next step.
        """
        ...

    def take(self, parents: Sequence[int]) -> int:
        """Makes row i continue old row parents[i]; len(parents) rows are live afterwards. Returns the bytes it copied.

        Leaving, widening to a beam and reordering beams are all this. Only rows that moved are copied, in place, so
        a row that is overwritten must not be read: where parents[i] != i, i is not in parents.
        """
        ...


class Decoder(Protocol[M]):
    """A loaded model."""

    @property
    def row_tokens(self) -> int:
        """Source and target tokens that a row has room for."""
        ...

    def encode(self, sources: Sequence[Sequence[int]]) -> list[M]:
        """Runs the encoder on sources, the end tokens included.

        Raises errors.OutOfMemory if there is no memory for so many tokens at once; nothing else is harmed by that.
        """
        ...

    def open_cache(self, rows: int) -> Cache[M]:
        """A running batch with room for so many rows."""
        ...
