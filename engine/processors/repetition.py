"""What keeps a target from repeating itself, or its source. Named after the logits processors of Hugging Face."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.processors.processor import Seen


@dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Makes the tokens of the target less likely, by a factor (Keskar et al. 2019, section 4.1). Below 1: more."""

    penalty: float
    of_logits, largest_id = True, 0

    @property
    def raises(self) -> bool:
        """May raise a score."""
        return self.penalty < 1

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        _penalise(scores, np.where(seen.targets < 0, seen.targets[:, -1:], seen.targets), self.penalty)


@dataclass(frozen=True, slots=True)
class EncoderRepetitionPenalty:
    """Makes the tokens of the source more likely, by a factor. Below 1: less."""

    penalty: float
    of_logits, largest_id = True, 0

    @property
    def raises(self) -> bool:
        """May raise a score."""
        return self.penalty > 1

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        _penalise(scores, np.where(seen.sources < 0, seen.sources[:, :1], seen.sources), 1 / self.penalty)


@dataclass(frozen=True, slots=True)
class NoRepeatNGram:
    """No sequence of so many tokens occurs twice in a target (Paulus et al. 2018, section 2.5)."""

    size: int
    of_logits, raises, largest_id = False, False, 0

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        _ban_continuations(scores, seen.targets, seen.targets, self.size)


@dataclass(frozen=True, slots=True)
class EncoderNoRepeatNGram:
    """No sequence of so many tokens of the source occurs in its target."""

    size: int
    of_logits, raises, largest_id = False, False, 0

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        _ban_continuations(scores, seen.sources, seen.targets, self.size)


def _penalise(scores: NDArray[np.float32], ids: NDArray[np.int64], penalty: float) -> None:
    """The same token may stand in `ids` [rows, some] more than once: it is penalised once."""
    rows = np.arange(len(ids))[:, None]
    old = scores[rows, ids]
    scores[rows, ids] = np.where(old < 0, old * penalty, old / penalty)


def _ban_continuations(
    scores: NDArray[np.float32], text: NDArray[np.int64], targets: NDArray[np.int64], size: int
) -> None:
    """Bans what follows in `text` wherever it has the last `size - 1` tokens of a row's target."""
    if min(targets.shape[1] + 1, text.shape[1]) < size:
        return
    starts = text.shape[1] - size + 1
    following = text[:, size - 1 :]
    # What is missing stands in front of a text or behind it.
    same = (text[:, :starts] >= 0) & (following >= 0)
    for place in range(size - 1):
        token = targets[:, targets.shape[1] - size + 1 + place, None]
        same &= text[:, place : place + starts] == token
    if same.any():
        rows, places = same.nonzero()
        scores[rows, following[rows, places]] = -np.inf
