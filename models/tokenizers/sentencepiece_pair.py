"""Text <-> token ids by SentencePiece, with the ids that a translation model gave the pieces."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import filterfalse, repeat
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from sentencepiece import SentencePieceProcessor

from models.config import Frozen
from models.tokenizers.tokenizer import NOWHERE, Span, TokenizerError, clean_up, without_spaces, without_tail

SPACE = "▁"
"""How SentencePiece writes a space (U+2581)."""
MOST_TOKENS = 1 << 24
"""Of a vocabulary. The largest have a quarter of a million; there is room for each id of them, given or not."""
LANGUAGE_CODE = re.compile(r">>[^<>]+<<")
"""One token that names the target language, at the beginning of a source (multilingual Marian models)."""


class SentencePieceSpec(Frozen):
    """A SentencePiece model for each side, and the ids that the translation model gave their pieces."""

    kind: Literal["sentencepiece-pair"] = "sentencepiece-pair"
    source_model: str = "source.spm"
    target_model: str = "target.spm"
    vocabulary: str | None = "vocab.json"
    """Piece -> id. None: the ids are those of each SentencePiece model itself."""
    target_vocabulary: str | None = None
    """Piece -> id of the target side, where it has ids of its own."""
    normalization: dict[Annotated[str, Field(min_length=1, max_length=1)], str] = Field(default_factory=dict)
    """Characters replaced before tokenising."""
    end_id: int
    """The id that ends a source."""
    unknown_id: int
    """The id of source pieces that the vocabulary lacks."""
    hidden_ids: tuple[int, ...]
    """Ids that stand for no text: end, padding, decoder start."""
    target_codes: dict[str, str] = Field(default_factory=dict)
    """Target language -> the piece before a source that names it, for a model that translates into several."""
    source_ids: dict[str, int] = Field(default_factory=dict)
    """Source language -> the id before its texts, for a model that is told it (M2M100)."""
    source_id: int | None = None
    """The id before texts of another language, or of one that nobody names."""
    source_id_last: bool = False
    """The ids of source languages stand behind the end token instead (PLBart)."""
    cleans_up: bool = False
    """Spaces before punctuation and in contractions are taken out of targets (PLBart)."""

    @property
    def files(self) -> list[str]:
        """The files it is loaded from."""
        names = [self.source_model, self.target_model, self.vocabulary, self.target_vocabulary]
        return sorted({name for name in names if name is not None})


class SentencePiecePair:
    """A `Tokenizer` of two SentencePiece models, or one. May be used from several threads."""

    def __init__(
        self,
        spec: SentencePieceSpec,
        source: SentencePieceProcessor,
        target: SentencePieceProcessor,
        source_ids: dict[str, int],
        target_ids: dict[str, int],
    ) -> None:
        self.spec = spec
        self._source, self._target = source, target
        self._pieces = {token_id: piece for piece, token_id in target_ids.items()}
        # Whoever sends a text is not to end it for the model, where the vocabulary finds its control tokens in texts.
        self._ids = without_ids(source_ids, {spec.end_id})
        self._target_ids = without_ids(target_ids, spec.hidden_ids)
        self._unknown: str = target.id_to_piece(target.unk_id())
        self._unknown_text: str = target.decode_pieces([self._unknown])
        self._hidden = frozenset(spec.hidden_ids)
        self._replacements, self._replaced = str.maketrans(spec.normalization), frozenset(spec.normalization)
        self._has_codes = any(map(LANGUAGE_CODE.fullmatch, source_ids))
        self.longest_piece = max(len(piece) for piece in _pieces(source))
        """Characters of the longest source piece.

        Ordinary text of n characters has at least n / longest_piece tokens; runs of spaces, or of characters that the
        vocabulary does not know, are a single token however long they are.
        """

    @classmethod
    def load(cls, folder: Path, spec: SentencePieceSpec) -> "SentencePiecePair":
        """Reads the files that the spec names. Raises TokenizerError."""
        source = load_sentencepiece(folder / spec.source_model)
        target = source if spec.target_model == spec.source_model else load_sentencepiece(folder / spec.target_model)
        if spec.vocabulary is None:
            return cls(spec, source, target, _own_ids(source), _own_ids(target))
        ids = load_vocabulary(folder / spec.vocabulary)
        target_ids = ids if spec.target_vocabulary is None else load_vocabulary(folder / spec.target_vocabulary)
        return cls(spec, source, target, ids, target_ids)

    @property
    def largest_ids(self) -> tuple[int, int]:
        """Of a source, with what stands around it, and of a target."""
        spec = self.spec
        around = [spec.end_id, spec.unknown_id, *spec.source_ids.values()]
        last = -1 if spec.source_id is None else spec.source_id
        return max(*self._ids.values(), *around, last), max(self._pieces)

    @property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary lacks."""
        return self.spec.unknown_id

    def encode(self, text: str, target_language: str = "", source_language: str = "") -> list[int]:
        """The token ids of a source, the end token included, with what names its language on one side.

        A text that names its target language itself is left to it; else the code of `target_language` comes first, if
        the model has codes.
        """
        # To look whether anything is to be replaced takes a tenth of the time.
        replaced = text if self._replaced.isdisjoint(text) else text.translate(self._replacements)
        pieces = self._split(replaced)
        code = self.spec.target_codes.get(target_language)
        if code is not None and pieces and not self.names_target(text):
            pieces.insert(0, code)
        before, after = self._beside(source_language)
        ids = map(self._ids.get, pieces, repeat(self.spec.unknown_id))
        return [*before, *ids, self.spec.end_id, *after]

    def spans(self, text: str, target_language: str = "", source_language: str = "") -> list[Span]:
        """Where each token that `encode` gives stands in the text."""
        replaced = text.translate(self._replacements)
        code = self._own_code(replaced)
        begin = 0 if code is None else len(code)
        offsets: list[Span] = self._source.encode(replaced[begin:], return_type="offset_mapping")["offsets"]
        places = _places(text, self.spec.normalization)
        found = (without_spaces(replaced, begin + first, begin + last) for first, last in offsets)
        spans = [NOWHERE if span == NOWHERE else (places[span[0]], places[span[1] - 1] + 1) for span in found]
        told = code is not None or bool(spans and target_language in self.spec.target_codes)
        before, after = self._beside(source_language)
        return [*[NOWHERE] * (len(before) + told), *spans, *[NOWHERE] * (1 + len(after))]

    def encode_target(self, text: str) -> list[int]:
        """The token ids of a target, or of words of one, with nothing around them. No text has no tokens."""
        unknown, id_of = self.spec.unknown_id, self._target_ids.get
        return [id_of(piece, unknown) for piece in self._target.encode(text, out_type=str)]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of target tokens. Ids that stand for no text are skipped; an unknown token is written " ⁇ "."""
        shown = filterfalse(self._hidden.__contains__, token_ids)
        pieces = [*map(self._pieces.get, shown, repeat(self._unknown))]
        text: str = self._target.decode_pieces(pieces) if pieces else ""
        text = text.replace(SPACE, " ").strip()
        return clean_up(text) if self.spec.cleans_up else text

    def settled(self, token_ids: Sequence[int]) -> str:
        """Of the text of a target that is not complete, what no later token can change.

        Cleaning up may join a word to the one before it.
        """
        whole = without_tail(self.decode(token_ids))
        return whole.rpartition(" ")[0] if self.spec.cleans_up else whole

    def names_target(self, text: str) -> bool:
        """Whether the text begins with the code of a language, such as `>>fra<<`, that the vocabulary has."""
        return self._own_code(text) is not None

    def pieces(self) -> list[bytes]:
        """What each target token adds to a text, in UTF-8: a space before a word included."""
        pieces = [self._unknown_text.encode()] * (1 + max(self._pieces))
        for token_id, piece in self._pieces.items():
            pieces[token_id] = self._bytes_of(piece)
        for token_id in self._hidden:
            pieces[token_id : token_id + 1] = [b""]
        return pieces

    def _bytes_of(self, piece: str) -> bytes:
        number: int = self._target.piece_to_id(piece)
        if self._target.is_byte(number):
            return bytes.fromhex(piece.removeprefix("<0x").removesuffix(">"))
        if piece == self._unknown:
            return self._unknown_text.encode()
        return b"" if self._target.is_control(number) else piece.replace(SPACE, " ").encode()

    def _beside(self, source_language: str) -> tuple[list[int], list[int]]:
        """The ids before a source, and those behind its end token, which name its language."""
        named = self.spec.source_ids.get(source_language, self.spec.source_id)
        ids = [] if named is None else [named]
        return ([], ids) if self.spec.source_id_last else (ids, [])

    def _split(self, text: str) -> list[str]:
        code = self._own_code(text)
        if code is None:
            pieces: list[str] = self._source.encode(text, out_type=str)
            return pieces
        return [code, *self._source.encode(text[len(code) :], out_type=str)]

    def _own_code(self, text: str) -> str | None:
        code = LANGUAGE_CODE.match(text) if self._has_codes else None
        return code.group() if code is not None and code.group() in self._ids else None


def _places(text: str, replacements: dict[str, str]) -> list[int]:
    """Where each character stood that replacements make of the text."""
    return [place for place, character in enumerate(text) for _ in replacements.get(character, character)]


def without_ids(vocabulary: dict[str, int], ids: Collection[int]) -> dict[str, int]:
    """Piece -> id, but for some ids."""
    return {piece: token_id for piece, token_id in vocabulary.items() if token_id not in ids}


def load_vocabulary(file: Path) -> dict[str, int]:
    """Reads piece -> id. Raises TokenizerError."""
    try:
        vocabulary = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{file.name} cannot be read: {error}") from error
    if not isinstance(vocabulary, dict) or not all(type(token_id) is int for token_id in vocabulary.values()):
        raise TokenizerError(f"{file.name} is not an object of pieces and their integer ids")
    if not vocabulary:
        raise TokenizerError(f"{file.name} has no pieces")
    piece = next((one for one, token_id in vocabulary.items() if not 0 <= token_id < MOST_TOKENS), None)
    if piece is not None:
        raise TokenizerError(
            f"{file.name} gives {piece!r} the id {vocabulary[piece]}; ids are from 0 to {MOST_TOKENS - 1}"
        )
    try:
        "".join(vocabulary).encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(f"{file.name} has a piece that is no text: half a character of UTF-16") from error
    return vocabulary


def load_sentencepiece(file: Path) -> SentencePieceProcessor:
    """Reads a SentencePiece model. Raises TokenizerError."""
    try:
        data = file.read_bytes()
        if not data:  # which SentencePiece would take for a model without pieces
            raise TokenizerError(f"{file.name} is empty; a SentencePiece model was expected")
        model = SentencePieceProcessor(model_proto=data)
        pieces = _pieces(model)
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{file.name} is not a SentencePiece model: {error}") from error
    if not any(pieces):
        raise TokenizerError(f"{file.name} is a SentencePiece model without pieces")
    return model


def _pieces(model: SentencePieceProcessor) -> list[str]:
    pieces: list[str] = model.id_to_piece(list(range(model.get_piece_size())))
    return pieces


def _own_ids(model: SentencePieceProcessor) -> dict[str, int]:
    return {piece: token_id for token_id, piece in enumerate(_pieces(model))}
