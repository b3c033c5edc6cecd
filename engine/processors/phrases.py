"""Words that a target should have, or must not have. Named after the logits processors of Hugging Face."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.processors.processor import Seen
from models.decoding import Bias, TokenIds


@dataclass(frozen=True, slots=True)
class SequenceBias:
    """Adds something to the score of a phrase's last token, where a target has those before it."""

    biases: tuple[Bias, ...]
    of_logits = False
    of_one_token: tuple[NDArray[np.int64], NDArray[np.float32]] = field(init=False, compare=False, repr=False)
    """The tokens of phrases that have no other, and what is added to their scores."""
    longer: tuple[tuple[NDArray[np.int64], NDArray[np.float32]], ...] = field(init=False, compare=False, repr=False)
    """The other phrases, those of a length together [phrases, tokens], and what is added to their last tokens'."""

    def __post_init__(self) -> None:
        # Of a phrase that is given twice it is the last bias that holds, as in the dictionary of Hugging Face.
        by_length: dict[int, dict[TokenIds, float]] = {}
        for phrase, bias in self.biases:
            by_length.setdefault(len(phrase), {})[phrase] = bias
        single, *longer = (
            (np.array(list(phrases), np.int64).reshape(-1, length), np.array(list(phrases.values()), np.float32))
            for length, phrases in sorted({1: {}, **by_length}.items())
        )
        object.__setattr__(self, "of_one_token", (single[0][:, 0], single[1]))
        object.__setattr__(self, "longer", tuple(longer))

    @property
    def raises(self) -> bool:
        """May raise a score."""
        return any(bias > 0 for _, bias in self.biases)

    @property
    def largest_id(self) -> int:
        """The largest token id that it names."""
        return max(max(phrase) for phrase, _ in self.biases)

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        tokens, biases = self.of_one_token
        scores[:, tokens] += biases
        for phrases, of_phrases in self.longer:
            before = phrases.shape[1] - 1
            if before <= seen.targets.shape[1]:
                rows, fits = (seen.targets[:, None, -before:] == phrases[:, :-1]).all(2).nonzero()
                np.add.at(scores, (rows, phrases[fits, -1]), of_phrases[fits])


def no_bad_words(phrases: Sequence[TokenIds], end_ids: frozenset[int]) -> SequenceBias | None:
    """Leaves a target none of these phrases. As in `generate`, an end token is not one. None: there are none."""
    words = [phrase for phrase in phrases if not (len(phrase) == 1 and phrase[0] in end_ids)]
    return SequenceBias(tuple((phrase, -np.inf) for phrase in words)) if words else None


@dataclass(frozen=True, slots=True)
class SuppressTokens:
    """Tokens that no target has, or none where it begins."""

    token_ids: TokenIds
    at: int | None = None
    """After so many chosen tokens alone."""
    of_logits, raises = False, False
    columns: NDArray[np.int64] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", np.array(self.token_ids, np.int64))

    @property
    def largest_id(self) -> int:
        """The largest token id that it names."""
        return max(self.token_ids)

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        if self.at is None:
            scores[:, self.columns] = -np.inf
        else:
            scores[np.ix_(seen.chosen == self.at, self.columns)] = -np.inf


@dataclass(frozen=True, slots=True)
class PrefixBias:
    """The next token of a prefix gets a share of the probability, as long as a target follows the prefix.

    CTranslate2's `prefix_bias_beta`.
    """

    prefix: TokenIds
    beta: float
    of_logits, raises = False, True

    @property
    def largest_id(self) -> int:
        """The largest token id that it names."""
        return max(self.prefix)

    def __call__(self, scores: NDArray[np.float32], seen: Seen) -> None:
        for row, chosen in enumerate(seen.chosen.tolist()):
            target = seen.targets[row, seen.targets.shape[1] - chosen :].tolist()
            if chosen < len(self.prefix) and target == list(self.prefix[:chosen]):
                self._bias(scores[row], self.prefix[chosen])

    def _bias(self, scores: NDArray[np.float32], token: int) -> None:
        largest = scores.max()
        scores -= largest + np.log(np.exp(scores - largest).sum())
        with np.errstate(divide="ignore"):
            scores += np.log1p(-self.beta)
            scores[token] = np.log(np.exp(scores[token]) + self.beta)
