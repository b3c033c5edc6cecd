"""Text <-> token ids by bytes of UTF-8 (ByT5, Xue et al. 2021, section 3)."""

from collections.abc import Iterable, Sequence
from typing import Literal

from models.config import Frozen
from models.tokenizers.tokenizer import NOWHERE, Span, without_spaces

BYTES = 256


class ByteSpec(Frozen):
    """Which ids the bytes have: `offset` and the next 255. Every other id stands for no text."""

    kind: Literal["bytes"] = "bytes"
    offset: int = 3
    end_id: int = 1

    @property
    def files(self) -> list[str]:
        """None: there is nothing to load."""
        return []


class ByteTokenizer:
    """A `Tokenizer` without a vocabulary."""

    longest_piece = 1
    """Characters of the longest source piece: a character has one token at least."""

    unknown_id: int | None = None
    """The id of what the vocabulary lacks: nothing."""

    def __init__(self, spec: ByteSpec) -> None:
        self.spec = spec

    def encode(self, text: str, target_language: str = "", source_language: str = "") -> list[int]:
        """A token for each byte, and the end token."""
        return [*self.encode_target(text), self.spec.end_id]

    def spans(self, text: str, target_language: str = "", source_language: str = "") -> list[Span]:
        """Each byte of a character has its span; the end token is NOWHERE."""
        characters = ((place, len(character.encode())) for place, character in enumerate(text))
        spans = (without_spaces(text, place, place + 1) for place, size in characters for _ in range(size))
        return [*spans, NOWHERE]

    def encode_target(self, text: str) -> list[int]:
        """A token for each byte."""
        return [byte + self.spec.offset for byte in text.encode()]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of target tokens. Bytes that are no text are skipped, as ids that are no byte."""
        found = (token_id - self.spec.offset for token_id in token_ids)
        return bytes(byte for byte in found if 0 <= byte < BYTES).decode(errors="ignore")

    def settled(self, token_ids: Sequence[int]) -> str:
        """What no later token can change, of the text of a target that is not complete: all of it."""
        return self.decode(token_ids)

    def names_target(self, text: str) -> bool:
        """Never."""
        return False

    def pieces(self) -> list[bytes]:
        """What each target token adds to a text: its byte."""
        return [b""] * self.spec.offset + [bytes([byte]) for byte in range(BYTES)]
