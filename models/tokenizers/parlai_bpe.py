"""Text <-> token ids by the rules of ParlAI's dictionaries: the smaller of the Blenderbots.

Words stand between spaces and before punctuation, in lower case; a piece that its word goes on behind ends with "@@".
There is no end token: a source is its text alone.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from models.config import Frozen
from models.tokenizers.merges import END_OF_WORD, REMEMBERED_WORDS, Ranks, merge, read_merges
from models.tokenizers.sentencepiece_pair import load_vocabulary
from models.tokenizers.tokenizer import NOWHERE, Span, clean_up

GOES_ON = "@@"
WORD = re.compile(r"[\S\x1c-\x1f]+\n?")
"""What Unicode calls a space is none of the four separators that Python takes for some."""
PUNCTUATION = re.compile(r"[.,!?()]")
SPACES = re.compile(r"[ \n]{2,}")
LINE_BREAK = "__newln__"
"""How a line break behind a word is written."""


class ParlaiSpec(Frozen):
    """The vocabulary of both sides, and the merges."""

    kind: Literal["parlai"] = "parlai"
    vocabulary: str = "vocab.json"
    """Piece -> id."""
    merges: str = "merges.txt"
    """Two pieces in each line but the first, the pair that is merged first in the second."""
    unknown_id: int
    """The id of pieces that the vocabulary lacks."""
    hidden_ids: tuple[int, ...]
    """Ids that stand for no text."""
    cleans_up: bool = False
    """Spaces before punctuation are taken out of targets."""

    @property
    def files(self) -> list[str]:
        """The files it is loaded from."""
        return [self.vocabulary, self.merges]


class ParlaiBpe:
    """A `Tokenizer`. May be used from several threads."""

    def __init__(self, spec: ParlaiSpec, ids: dict[str, int], ranks: Ranks) -> None:
        self.spec = spec
        self._ids, self._ranks = ids, ranks
        self._pieces = {token_id: piece for piece, token_id in ids.items()}
        self._hidden = frozenset(spec.hidden_ids)
        self._split = lru_cache(REMEMBERED_WORDS)(self._split_word)
        self.longest_piece = 1 + max(map(len, ids))
        """Characters of the longest piece, and a space before it."""

    @classmethod
    def load(cls, folder: Path, spec: ParlaiSpec) -> "ParlaiBpe":
        """Reads the files that the spec names. Raises TokenizerError."""
        merges = read_merges(folder / spec.merges)[1:]
        return cls(spec, load_vocabulary(folder / spec.vocabulary), {pair: rank for rank, pair in enumerate(merges)})

    @property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary lacks."""
        return self.spec.unknown_id

    def encode(self, text: str, target_language: str = "", source_language: str = "") -> list[int]:
        """The token ids of a source, with nothing around them."""
        return self.encode_target(text)

    def spans(self, text: str, target_language: str = "", source_language: str = "") -> list[Span]:
        """Where each token that `encode` gives stands in the text. What stands for a line break is NOWHERE."""
        found = list[Span]()
        for match in WORD.finditer(text):
            word, place = match[0], 0
            lower = word.lower()
            for piece in self._split(word):
                bare = piece.removesuffix(GOES_ON)
                begin = (lower if len(lower) == len(word) else word).find(bare, place)
                place = place if begin < 0 else begin + len(bare)
                found.append(NOWHERE if begin < 0 else (match.start() + begin, match.start() + place))
        return found

    def encode_target(self, text: str) -> list[int]:
        """The token ids of a target, or of words of one. No text has no tokens."""
        ids = (self._ids.get(piece, self.spec.unknown_id) for word in WORD.findall(text) for piece in self._split(word))
        return [self.spec.unknown_id if token_id in self._hidden else token_id for token_id in ids]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of target tokens. Ids that stand for no text are skipped."""
        text = " ".join(self._shown(token_ids)).replace(f"{GOES_ON} ", "").strip()
        return clean_up(text) if self.spec.cleans_up else text

    def settled(self, token_ids: Sequence[int]) -> str:
        """What no later token can change: all but a word that goes on, and what is cleaned up with the next."""
        shown = [token_id for token_id in token_ids if token_id not in self._hidden]
        while shown and self._pieces.get(shown[-1], "").endswith(GOES_ON):
            del shown[-1]
        whole = self.decode(shown)
        return whole.rpartition(" ")[0] if self.spec.cleans_up else whole

    def names_target(self, text: str) -> bool:
        """Never: there is one target language."""
        return False

    def pieces(self) -> list[bytes]:
        """What each token adds to a text, in UTF-8: the space behind a word included."""
        pieces = [b""] * (1 + max(self._pieces))
        for token_id, piece in self._pieces.items():
            if token_id not in self._hidden:
                goes_on = piece.endswith(GOES_ON)
                pieces[token_id] = (piece.removesuffix(GOES_ON) if goes_on else f"{piece} ").encode()
        return pieces

    def _shown(self, token_ids: Iterable[int]) -> Iterator[str]:
        shown = (token_id for token_id in token_ids if token_id not in self._hidden)
        return (self._pieces[token_id] for token_id in shown if token_id in self._pieces)

    def _split_word(self, word: str) -> tuple[str, ...]:
        """The pieces of what stands between spaces."""
        spaced = PUNCTUATION.sub(r" \g<0>", word).replace("'", " ' ")
        # A line break behind a space goes with it.
        parts = SPACES.sub(" ", spaced).replace("\n", f" {LINE_BREAK}").split(" ")
        return tuple(piece for part in parts if part for piece in self._split_part(part.lower()))

    def _split_part(self, part: str) -> Iterator[str]:
        *begun, last = merge(part, self._ranks)
        yield from (piece + GOES_ON for piece in begun)
        yield last.removesuffix(END_OF_WORD)
