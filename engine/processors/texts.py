"""Texts that no target has, whichever tokens they would be written with."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.processors.processor import Seen
from models.tokenizers.target_texts import Completions, Pieces


@dataclass(frozen=True, slots=True)
class NoTexts:
    """Bans every token that would complete one of the texts."""

    texts: tuple[str, ...]
    pieces: Pieces
    of_logits, raises, largest_id = False, False, 0
    completions: Completions = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "completions", Completions(self.texts, self.pieces))

    @classmethod
    def of(cls, texts: Sequence[str], pieces: Pieces | None) -> Self | None:
        """None: there are no texts."""
        if not texts:
            return None
        assert pieces is not None, "whoever excludes texts says what tokens add to one"
        return cls(tuple(texts), pieces)

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        for row, target in enumerate(seen.targets.tolist()):
            for banned in (self.completions.anywhere, *self.completions.after(target)):
                scores[row, banned[banned < scores.shape[1]]] = -np.inf
