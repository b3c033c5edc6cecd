"""What is translated: real sentences, and random tokens where only their number counts."""

import random
from collections.abc import Sequence
from pathlib import Path

from bench.sentences import heldout
from models.config import ModelShape
from models.package.folder import Package

SEED = 11

Tokens = tuple[int, ...]


def real(package: Package, count: int, longest: int) -> list[Tokens]:
    """The first held-out sentences, cut to `longest` tokens, the end token among them."""
    tokenizer = package.tokenizer()
    return [_shorten(tokenizer.encode(text), longest) for text in heldout()[:count]]


def of_length(config: ModelShape, count: int, length: int) -> list[Tokens]:
    """Random sources of one length, the end token counted."""
    return of_lengths(config, [length] * count, random.Random(SEED))


def of_lengths(config: ModelShape, lengths: Sequence[int], draw: random.Random) -> list[Tokens]:
    """Random sources. No token in them is the end or padding."""
    ids = [index for index in range(config.source_vocab_size) if index not in (config.end_id, config.pad_id)]
    return [(*draw.choices(ids, k=length - 1), config.end_id) for length in lengths]


def _shorten(source: Sequence[int], longest: int) -> Tokens:
    return tuple(source) if len(source) <= longest else (*source[: longest - 1], source[-1])


def texts_near(folder: Path, count: int, length: int) -> dict[str, Tokens]:
    """The held-out sentences whose number of tokens is nearest to `length`, the end token counted, and their tokens."""
    tokenizer = Package.open(folder).tokenizer()
    tokens = {text: tuple(tokenizer.encode(text)) for text in heldout()}
    return dict(sorted(tokens.items(), key=lambda pair: abs(len(pair[1]) - length))[:count])
