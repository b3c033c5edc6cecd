"""Texts that 8 bits are made and measured with."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

LEAST_LIKENESS = 0.6
"""English and Portuguese sentences of news, software and games, 32 and more: within a language 0.73 at least, between
both 0.53 at most."""


class CalibrationError(Exception):
    """What 8 bits would be calibrated on is not what they are for."""


@dataclass(frozen=True)
class Calibration:
    """Sentences to calibrate on."""

    texts: Sequence[str]
    sha256: str
    """Of the file that they are from."""


@dataclass(frozen=True)
class Loss:
    """What 8 bits may cost at most, by references."""

    bleu: float = 0.1
    chrf: float = 0.1


@dataclass(frozen=True)
class Samples:
    """Sentences to measure on."""

    texts: Sequence[str]
    references: Sequence[str] = ()
    """A translation of each, if there are any."""
    most_loss: Loss = Loss()


def check_likeness(calibration: Sequence[Sequence[int]], samples: Sequence[Sequence[int]]) -> None:
    """Raises CalibrationError where two texts, as token ids, are not of one language."""
    if (found := likeness(calibration, samples)) < LEAST_LIKENESS:
        raise CalibrationError(
            f"the tokens of {len(calibration)} texts to calibrate on are unlike those of {len(samples)} samples: the "
            f"cosine of how often each comes is {found:.2f}, and {LEAST_LIKENESS} at least within a language: "
            "name texts of the source language with --calibration and with --samples"
        )


def likeness(some: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> float:
    """Cosine of how often each token comes. What every text has, such as its end, says nothing and is left out."""
    everywhere = set.intersection(*map(set, (*some, *others)))
    first, second = (
        Counter(token for text in texts for token in text if token not in everywhere) for texts in (some, others)
    )
    norms = sqrt(sum(count**2 for count in first.values()) * sum(count**2 for count in second.values()))
    return sum(count * second[token] for token, count in first.items()) / norms if norms else 1.0
