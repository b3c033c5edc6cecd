"""Text <-> token ids by a tokenizer.json, as Hugging Face's library `tokenizers` reads it: most families have one."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from models.config import Frozen
from models.tokenizers.tokenizer import NOWHERE, Span, TokenizerError, clean_up, without_spaces, without_tail

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


class Affixes(Frozen):
    """Ids around the text of a source."""

    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    between_ids: tuple[int, ...] = ()
    """Between two texts that are read together. Empty: none are."""


def _several(ids: Any) -> Any:
    """Packages of before have a single id."""
    return (ids,) if isinstance(ids, int) else tuple(ids) if isinstance(ids, list) else ids


class TokenizerJsonSpec(Frozen):
    """A tokenizer.json, and what it does not say."""

    kind: Literal["tokenizers"] = "tokenizers"
    file: str = "tokenizer.json"
    affixes: Affixes
    """Around every source."""
    source_affixes: dict[str, Affixes] = Field(default_factory=dict)
    """Source language -> what is around its texts instead."""
    target_codes: dict[str, Annotated[tuple[int, ...], BeforeValidator(_several)]] = Field(default_factory=dict)
    """Target language -> the ids before a source that name it, for a model that is told so there."""
    unknown_id: int
    """The id of what the vocabulary lacks, and of control tokens that are written in a text."""
    hidden_ids: tuple[int, ...]
    """Ids that stand for no text: control tokens."""
    cleans_up: bool = False
    """Spaces before punctuation and in contractions are taken out of targets, as some old English models want."""

    @property
    def files(self) -> list[str]:
        """The files it is loaded from."""
        return [self.file]


class TokenizerJson:
    """A `Tokenizer` of the library `tokenizers`. May be used from several threads.

    Control tokens written in a text are text here, or an unknown token where the vocabulary has them as pieces; in
    transformers they are control tokens. Whoever sends a text is not to end it for the model, or to name another
    language. This is the one difference that is meant.
    """

    def __init__(self, spec: TokenizerJsonSpec, backend: "Backend") -> None:
        """backend: see `load_backend`."""
        self.spec, self._backend = spec, backend
        self._hidden = frozenset(spec.hidden_ids)
        vocabulary = backend.get_vocab()
        self._vocabulary_size = 1 + max(vocabulary.values())
        self._byte_ids = frozenset(vocabulary[piece] for piece in bytes_together(kinds_of_decoder(backend), vocabulary))
        self.longest_piece = 1 + max(map(len, vocabulary))
        """Characters of the longest source piece, and a space before it.

        Ordinary text of n characters has at least n / longest_piece tokens; runs of spaces, or of characters that the
        vocabulary does not know, are a single token however long they are.
        """

    @classmethod
    def load(cls, folder: Path, spec: TokenizerJsonSpec) -> "TokenizerJson":
        """Reads the file that the spec names. Raises TokenizerError."""
        tokenizer = cls(spec, load_backend(folder / spec.file))
        tokenizer._check_ids()
        tokenizer._check_use()
        return tokenizer

    @property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary lacks."""
        return self.spec.unknown_id

    def encode(self, text: str, target_language: str = "", source_language: str = "") -> list[int]:
        """The token ids of a source, with what is around it."""
        affixes = self.spec.source_affixes.get(source_language, self.spec.affixes)
        code = self.spec.target_codes.get(target_language, ())
        return [*affixes.prefix_ids, *code, *self.encode_target(text), *affixes.suffix_ids]

    def encode_pair(self, text: str, second: str) -> list[int]:
        """The token ids of two texts that are read together, with what is around and between them."""
        around = self.spec.affixes
        first, last = self.encode_target(text), self.encode_target(second)
        return [*around.prefix_ids, *first, *around.between_ids, *last, *around.suffix_ids]

    def spans(self, text: str, target_language: str = "", source_language: str = "") -> list[Span]:
        """Where each token that `encode` gives stands in the text."""
        affixes = self.spec.source_affixes.get(source_language, self.spec.affixes)
        before = len(affixes.prefix_ids) + len(self.spec.target_codes.get(target_language, ()))
        encoded = self._backend.encode(text, add_special_tokens=False)
        spans = (without_spaces(text, *offsets) for offsets in encoded.offsets)
        return [*[NOWHERE] * before, *spans, *[NOWHERE] * len(affixes.suffix_ids)]

    def encode_target(self, text: str) -> list[int]:
        """The token ids of a target, or of words of one, with nothing around them. No text has no tokens."""
        hidden, unknown = self._hidden, self.spec.unknown_id
        ids = self._backend.encode(text, add_special_tokens=False).ids
        return [unknown if token_id in hidden else token_id for token_id in ids]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of target tokens. Ids that stand for no text, or that the vocabulary lacks, are skipped."""
        text: str = self._backend.decode(self._shown(token_ids), skip_special_tokens=False)
        return clean_up(text) if self.spec.cleans_up else text

    def settled(self, token_ids: Sequence[int]) -> str:
        """Of the text of a target that is not complete, what no later token can change.

        Bytes that follow each other are no characters where one of them is wrong, and cleaning up may join a word to
        the one before it.
        """
        shown = self._shown(token_ids)
        while shown and shown[-1] in self._byte_ids:
            del shown[-1]
        whole = without_tail(self.decode(shown))
        return whole.rpartition(" ")[0] if self.spec.cleans_up else whole

    def names_target(self, text: str) -> bool:
        """Never: a control token in a text is an unknown one."""
        return False

    def pieces(self) -> list[bytes]:
        """What each target token adds to a text, in UTF-8: behind a word, where it is no part of a character."""
        ids = [token_id for token_id in range(self._vocabulary_size) if token_id not in self._hidden]
        before = self.encode_target(WORD)
        word = self._backend.decode(before, skip_special_tokens=False)
        texts = self._backend.decode_batch([[*before, token_id] for token_id in ids], skip_special_tokens=False)
        byte_of = bytes_of_pieces(kinds_of_decoder(self._backend))
        pieces = [b""] * self._vocabulary_size
        for token_id, text in zip(ids, texts, strict=True):
            found = byte_of(self._backend.id_to_token(token_id) or "")
            pieces[token_id] = text.removeprefix(word).encode() if found is None else found
        return pieces

    def _shown(self, token_ids: Iterable[int]) -> list[int]:
        hidden, size = self._hidden, self._vocabulary_size
        return [token_id for token_id in token_ids if token_id not in hidden and token_id < size]

    def _check_ids(self) -> None:
        spec = self.spec
        around = [spec.affixes, *spec.source_affixes.values()]
        named = [*(token_id for one in around for token_id in (*one.prefix_ids, *one.suffix_ids))]
        named += [token_id for code in spec.target_codes.values() for token_id in code]
        beyond = [one for one in (*named, spec.unknown_id) if one >= self._vocabulary_size]
        if beyond:
            raise TokenizerError(
                f"{spec.file} has ids up to {self._vocabulary_size - 1}, and the manifest names {max(beyond)}: "
                "they are of different models"
            )

    def _check_use(self) -> None:
        """The library reads files of which it cannot encode everything: without their own unknown token, for one."""
        for text in PROBES:
            with _foreign(f"{self.spec.file} cannot encode {text!r}"):
                self._backend.decode(self.encode_target(text))


def load_backend(file: Path) -> "Backend":
    """A tokenizer that neither cuts nor fills up, as a saved one may ask for. Raises TokenizerError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{file.name} cannot be read: {error.strerror}") from error
    return parse_backend(content, file.name)


def parse_backend(content: bytes, name: str) -> "Backend":
    """As `load_backend`, of what a file of this name has. Raises TokenizerError."""
    try:
        from tokenizers import Tokenizer as Backend
    except ImportError as error:
        raise TokenizerError(f"{name} needs the package tokenizers: pip install 'dragoman[tokenizers]'") from error
    with _foreign(f"{name} is not a tokenizer"):
        backend = Backend.from_str(content.decode())
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    if not backend.get_vocab(with_added_tokens=False):
        raise TokenizerError(f"{name} is a tokenizer without a vocabulary")
    return backend


@contextmanager
def _foreign(failed: str) -> Iterator[None]:
    """Raises TokenizerError for what the library raises: errors without a type of theirs; a panic is no Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TokenizerError(f"{failed}: {error}") from error


def kinds_of_decoder(backend: "Backend") -> set[str]:
    """What its decoder is made of."""
    decoder: dict[str, Any] = json.loads(backend.decoder.__getstate__()) if backend.decoder else {}
    return {part["type"] for part in (decoder, *decoder.get("decoders", ())) if "type" in part}


def bytes_together(decoder: Collection[str], vocabulary: Iterable[str]) -> list[str]:
    """The pieces that are a byte, where those that follow each other become characters together."""
    return [piece for piece in vocabulary if BYTE.fullmatch(piece)] if "ByteFallback" in decoder else []


def bytes_of_pieces(decoder: Collection[str]) -> Callable[[str], bytes | None]:
    """What gives the bytes of a piece that may be a part of a character, and None for any other."""
    if "ByteLevel" in decoder:
        return lambda piece: bytes(map(LETTERS.__getitem__, piece)) if LETTERS.keys() >= set(piece) else None
    if "ByteFallback" in decoder:
        return lambda piece: bytes.fromhex(piece[3:5]) if BYTE.fullmatch(piece) else None
    return lambda piece: None


PROBES = ("A cat.", "\U0010fffd", "\t\0", "")
"""Texts that have, in most vocabularies, tokens and none."""
WORD = "word"
"""Behind which a token is seen as it is within a text."""
BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
"""A piece that is a byte, where there is no other for a character."""
VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
HIDDEN = tuple(byte for byte in range(0x100) if byte not in VISIBLE)
LETTERS = {chr(byte): byte for byte in VISIBLE} | {chr(0x100 + place): byte for place, byte in enumerate(HIDDEN)}
"""How pieces of bytes are written (Radford et al. 2019): a letter for each byte, none of them white."""
