"""Text <-> token ids by the rules of Moses and byte-pair encoding of its words: fairseq's models of WMT (FSMT).

Words are split as sacremoses does, a port of Moses's scripts (Koehn et al. 2007).
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from models.config import Frozen
from models.tokenizers.merges import END_OF_WORD, REMEMBERED_WORDS, Ranks, merge, read_merges
from models.tokenizers.sentencepiece_pair import load_vocabulary
from models.tokenizers.tokenizer import NOWHERE, Span, TokenizerError

LOOKS_AHEAD = ("cs",)
"""Languages whose detokenizer wants the end of a text to write its beginning, and fails at some."""


class MosesSpec(Frozen):
    """Vocabularies, merges, and the languages whose rules words are split and joined by."""

    kind: Literal["moses"] = "moses"
    source_vocabulary: str = "vocab-src.json"
    target_vocabulary: str = "vocab-tgt.json"
    """Piece -> id."""
    merges: str = "merges.txt"
    """Two pieces in each line, the pair that is merged first in the first."""
    source_rules: str = Field(pattern="^[a-z]{2,3}$")
    target_rules: str = Field(pattern="^[a-z]{2,3}$")
    """The language as Moses calls it."""
    lower_case: bool = False
    """Sources become lower case."""
    end_id: int
    """The id that ends a source."""
    unknown_id: int
    """The id of pieces that the vocabulary lacks."""
    hidden_ids: tuple[int, ...]
    """Ids that stand for no text."""

    @property
    def files(self) -> list[str]:
        """The files it is loaded from."""
        return [self.source_vocabulary, self.target_vocabulary, self.merges]


class MosesBpe:
    """A `Tokenizer`. May be used from several threads."""

    def __init__(self, spec: MosesSpec, source_ids: dict[str, int], target_ids: dict[str, int], ranks: Ranks) -> None:
        """Raises TokenizerError without sacremoses."""
        self.spec = spec
        self._ids, self._target_ids = source_ids, target_ids
        self._pieces = {token_id: piece for piece, token_id in target_ids.items()}
        self._hidden = frozenset(spec.hidden_ids)
        self._source_words, self._target_words = Words(spec.source_rules), Words(spec.target_rules)
        self._split = lru_cache(REMEMBERED_WORDS)(partial(merge, ranks=ranks))
        self.longest_piece = 1 + max(map(len, source_ids))
        """Characters of the longest source piece, and a space before it.

        Ordinary text of n characters has at least n / longest_piece tokens; spaces and control characters have none.
        """

    @classmethod
    def load(cls, folder: Path, spec: MosesSpec) -> "MosesBpe":
        """Reads the files that the spec names. Raises TokenizerError."""
        source, target = (load_vocabulary(folder / name) for name in (spec.source_vocabulary, spec.target_vocabulary))
        pairs = [words[:2] for words in read_merges(folder / spec.merges)]
        return cls(spec, source, target, {pair: rank for rank, pair in enumerate(pairs) if len(pair) == 2})

    @property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary lacks."""
        return self.spec.unknown_id

    def encode(self, text: str, target_language: str = "", source_language: str = "") -> list[int]:
        """The token ids of a source, the end token included."""
        return [*self._ids_of(self._source_pieces(text), self._ids), self.spec.end_id]

    def spans(self, text: str, target_language: str = "", source_language: str = "") -> list[Span]:
        """Where each token that `encode` gives stands in the text.

        Moses writes some signs in another way: a piece that does not stand in the text as it is, is NOWHERE.
        """
        found, place = list[Span](), 0
        lower = text.lower()
        text = lower if self.spec.lower_case and len(lower) == len(text) else text
        for piece in self._source_pieces(text):
            bare = self._source_words.unescape(piece.removesuffix(END_OF_WORD))
            begin = text.find(bare, place, place + len(bare) + FARTHEST) if bare else -1
            found.append(NOWHERE if begin < 0 else (begin, begin + len(bare)))
            place = place if begin < 0 else begin + len(bare)
        return [*found, NOWHERE]

    def encode_target(self, text: str) -> list[int]:
        """The token ids of a target, or of words of one, with nothing around them. No text has no tokens."""
        pieces = (piece for word in self._target_words.of(text) for piece in self._split(word))
        return self._ids_of(pieces, self._target_ids)

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of target tokens. Ids that stand for no text are skipped."""
        pieces = (self._pieces.get(token_id, "") for token_id in token_ids if token_id not in self._hidden)
        return self._target_words.joined("".join(pieces).replace(END_OF_WORD, " ").split())

    def settled(self, token_ids: Sequence[int]) -> str:
        """What no later token can change: all but the last word, which may go on, or may not stand alone."""
        words = self.decode(token_ids).rsplit(maxsplit=1)
        return words[0] if len(words) == 2 else ""

    def names_target(self, text: str) -> bool:
        """Never: there is one target language."""
        return False

    def pieces(self) -> list[bytes]:
        """What each target token adds to a text before words are joined, in UTF-8: the space behind a word included."""
        pieces = [b""] * (1 + max(self._pieces))
        for token_id, piece in self._pieces.items():
            if token_id not in self._hidden:
                pieces[token_id] = self._target_words.unescape(piece.replace(END_OF_WORD, " ")).encode()
        return pieces

    def _source_pieces(self, text: str) -> Iterator[str]:
        words = self._source_words.of(text.lower() if self.spec.lower_case else text)
        return (piece for word in words for piece in self._split(word))

    def _ids_of(self, pieces: Iterable[str], ids: dict[str, int]) -> list[int]:
        return [ids.get(piece, self.spec.unknown_id) for piece in pieces]


class Words:
    """Text <-> words by the rules of a language."""

    def __init__(self, language: str) -> None:
        """Raises TokenizerError without sacremoses."""
        try:
            from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
        except ImportError as error:
            raise TokenizerError("the tokenizer needs the package sacremoses: pip install 'dragoman[moses]'") from error
        self._normalizer: MosesPunctNormalizer = MosesPunctNormalizer(language, pre_replace_unicode_punct=True)
        self._tokenizer: MosesTokenizer = MosesTokenizer(language)
        self._detokenizer: MosesDetokenizer = MosesDetokenizer(language)

    def of(self, text: str) -> list[str]:
        """The words of a text, without control characters."""
        normalized = self._normalizer.normalize(text)
        plain = "".join(character for character in normalized if not unicodedata.category(character).startswith("C"))
        words: list[str] = self._tokenizer.tokenize(plain, aggressive_dash_splits=True)
        return words

    def joined(self, words: list[str]) -> str:
        """The text of words."""
        text: str = self._detokenizer.detokenize(words)
        return text

    def unescape(self, word: str) -> str:
        """What a word is a sign for, such as "&quot;"."""
        text: str = self._detokenizer.unescape_xml(word)
        return text


FARTHEST = 8
"""So many characters behind the last one a piece is looked for: spaces, and signs that became others."""
