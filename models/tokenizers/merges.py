"""Byte-pair encoding of a word.

Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from models.tokenizers.tokenizer import TokenizerError

Ranks = Mapping[tuple[str, ...], int]
"""Of pairs of pieces: the one that is merged first has the lowest."""
END_OF_WORD = "</w>"
REMEMBERED_WORDS = 1 << 14
NO_RANK = 1 << 62


def read_merges(file: Path) -> list[tuple[str, ...]]:
    """What the lines of a file have, between spaces. Raises TokenizerError."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{file.name} cannot be read: {error}") from error
    # The last line is no merge: a file ends with the end of one.
    return [tuple(line.split()) for line in lines[:-1]]


def merge(word: str, ranks: Ranks) -> tuple[str, ...]:
    """The pieces of a word: of all pairs of neighbours, that of the lowest rank is merged, wherever it stands."""
    pieces = [*word[:-1], word[-1] + END_OF_WORD]
    while len(pieces) > 1:
        first, second = min(pairwise(pieces), key=lambda pair: ranks.get(pair, NO_RANK))
        if (first, second) not in ranks:
            break
        merged = list[str]()
        for piece in pieces:
            # What has just been merged is a piece of its own: it is no first half of the same pair.
            if merged and piece == second and merged[-1] == first:
                merged[-1] = first + second
            else:
                merged.append(piece)
        pieces = merged
    return tuple(pieces)
