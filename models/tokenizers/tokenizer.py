"""What every tokenizer does. It belongs to its package: a text has the same ids wherever the package is served."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a character decodes to while some of its bytes are still to come."""


Span = tuple[int, int]
"""Where something begins in a text and where it ends, in characters."""
NOWHERE = (0, 0)
"""The span of what has no text."""


class TokenizerError(Exception):
    """A tokenizer file that cannot be read. The message names it."""


class Tokenizer(Protocol):
    """Encodes sources and targets, and decodes targets. May be used from several threads."""

    @property
    def longest_piece(self) -> int:
        """Characters of the longest source piece.

        Ordinary text of n characters has at least n / longest_piece tokens; runs of spaces, or of characters that the
        vocabulary does not know, are a single token however long they are.
        """
        ...

    @property
    def unknown_id(self) -> int | None:
        """The id of what the vocabulary lacks, if there is one."""
        ...

    def encode(self, text: str, target_language: str = "", source_language: str = "") -> list[int]:
        """The token ids of a source, with what belongs around it: the end token, and languages that the model is told.

        A text that names its target language itself is left to it.
        """
        ...

    def spans(self, text: str, target_language: str = "", source_language: str = "") -> list[Span]:
        """Where each token that `encode` gives stands in the text, without the spaces around it.

        What is put around the text is NOWHERE. Of a character with several tokens, some or all have its span.
        """
        ...

    def encode_target(self, text: str) -> list[int]:
        """The token ids of a target, or of words of one, with nothing around them. No text has no tokens."""
        ...

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of target tokens. Ids that stand for no text are skipped."""
        ...

    def settled(self, token_ids: Sequence[int]) -> str:
        """Of the text of a target that is not complete, what no later token can change."""
        ...

    def names_target(self, text: str) -> bool:
        """Whether the text names its target language itself."""
        ...

    def pieces(self) -> list[bytes]:
        """What each target token adds to a text, by its id, in UTF-8: a space before a word included.

        Put together, those of a target are its text, but for spaces around it, and for what a tokenizer cleans up.
        """
        ...


def without_spaces(text: str, begin: int, end: int) -> Span:
    """The part of a text from `begin` to `end` without the spaces around it. NOWHERE: nothing else is there."""
    part = text[begin:end]
    if not (bare := part.strip()):
        return NOWHERE
    begin += len(part) - len(part.lstrip())
    return begin, begin + len(bare)


def without_tail(text: str) -> str:
    """Without a character of which bytes are missing, and spaces, which the end of a text loses."""
    return text.rstrip(UNFINISHED).rstrip()


def clean_up(text: str) -> str:
    """As transformers' `clean_up_tokenization`."""
    for found, replacement in CLEANED:
        text = text.replace(found, replacement)
    return text


CLEANED = (
    *((f" {sign}", sign) for sign in ".?!,"),
    (" ' ", "'"),
    *((f" {ending}", ending) for ending in ("n't", "'m", "'s", "'ve", "'re")),
)


class TextStream:
    """The text of one target while its tokens arrive. The deltas, put together, are the decoded target."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._sent = 0

    def push(self, token_ids: Sequence[int]) -> str:
        """Takes the next tokens; returns the text that is new and that no later token can change."""
        self._token_ids += token_ids
        return self._send(self._tokenizer.settled(self._token_ids))

    def finish(self, token_ids: Sequence[int]) -> str:
        """Takes all tokens of the target, those pushed before included; returns the rest of its text."""
        return self._send(self._tokenizer.decode(token_ids))

    def _send(self, text: str) -> str:
        delta = text[self._sent :]
        self._sent = max(self._sent, len(text))
        return delta


def pieces(tokenizer: Tokenizer, token_ids: Sequence[int], prefix: Sequence[int] = ()) -> Iterator[tuple[str, int]]:
    """What each token of a target adds to its text, and where that begins: put together, all behind the prefix's.

    What a later token changes of the text before it, as where a tokenizer cleans up, is the later one's.
    """
    text = tokenizer.decode((*prefix, *token_ids))
    begin = _kept(tokenizer.decode(prefix), text)
    for place in range(1, len(token_ids) + 1):
        so_far = text if place == len(token_ids) else tokenizer.decode((*prefix, *token_ids[:place]))
        end = max(begin, _kept(so_far, text))
        yield text[begin:end], begin
        begin = end


def _kept(so_far: str, text: str) -> int:
    """How much of the text of some tokens is that of all of them."""
    whole = so_far if so_far == text else so_far.rstrip(UNFINISHED)
    if text.startswith(whole):
        return len(whole)
    return next((place for place, (a, b) in enumerate(zip(whole, text, strict=False)) if a != b), len(text))
