"""What the rows of a running batch may choose from, where a package has a shortlist."""

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Parents
from models.package.signature import NO_TOKEN

STEP = 256
"""Numbers of places are multiples of this: every change of them makes new bindings."""


class AllowedTokens:
    """Token ids that each row may have next, then -1s [rows, places]."""

    def __init__(self, rows: int) -> None:
        self.array = np.full((rows, STEP), NO_TOKEN, np.int32)

    def put(self, row: int, ids: NDArray[np.int32]) -> bool:
        """Allows these tokens to a row. True if the array is another one now."""
        grows = len(ids) > self.array.shape[1]
        if grows:
            old = self.array
            self.array = np.full((len(old), -(-len(ids) // STEP) * STEP), NO_TOKEN, np.int32)
            self.array[:, : old.shape[1]] = old
        self.array[row, : len(ids)] = ids
        self.array[row, len(ids) :] = NO_TOKEN
        return grows

    def take(self, parents: Parents) -> None:
        """Makes row i have what old row parents[i] had."""
        chosen = np.asarray(parents, np.intp)
        moved = np.flatnonzero(chosen != np.arange(len(chosen)))
        self.array[moved] = self.array[chosen[moved]]

    def fill(self, candidates: NDArray[np.int64]) -> None:
        """Puts a token where a row is allowed fewer than were asked for: its probability is 0, so no search takes it.

        candidates: [rows, k], those that are missing -1. The first is never missing.
        """
        np.maximum(candidates[:, 1:], 0, out=candidates[:, 1:])

    def mask(self, logits: NDArray[np.float32], rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Logits of some rows [some, vocabulary] with -inf where a token is not allowed."""
        masked = np.full_like(logits, -np.inf)
        for row, places in enumerate(self.array[rows]):
            ids = places[places != NO_TOKEN]
            masked[row, ids] = logits[row, ids]
        return masked

    def mask_named(
        self, logits: NDArray[np.float32], rows: NDArray[np.intp], token_ids: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Logits of tokens of some rows [some, named] with -inf where a token is not allowed."""
        allowed = (self.array[rows][:, None, :] == token_ids[:, :, None]).any(2)
        return np.where(allowed, logits, -np.inf).astype(np.float32)
