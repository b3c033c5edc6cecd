"""Texts that 8 bits are made and measured with."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Calibration:
    """Sentences to calibrate on."""

    texts: Sequence[str]
    sha256: str
    """Of the file that they are from."""


@dataclass(frozen=True)
class Samples:
    """Sentences to measure on."""

    texts: Sequence[str]
    references: Sequence[str] = ()
    """A translation of each, if there are any."""
