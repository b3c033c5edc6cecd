"""Texts that targets come to have, token by token, however they are written."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

APART = b"\xff"
"""Between pieces: no byte of UTF-8."""


class Pieces:
    """What each target token of a model adds to a text, see `Tokenizer.pieces`. Read when it is first needed.

    May be used from several threads.
    """

    def __init__(self, read: Callable[[], list[bytes]]) -> None:
        self._read = read

    @cached_property
    def of_tokens(self) -> list[bytes]:
        """By their ids."""
        return self._read()

    def load(self) -> None:
        """Reads all that may be needed: seconds, for a large vocabulary."""
        self._ordered, self._together  # noqa: B018  # they are kept

    def text(self, token_ids: Iterable[int]) -> bytes:
        """What tokens add to a text together."""
        return b"".join(map(self._piece, token_ids))

    def last(self, token_ids: Sequence[int], most: int) -> bytes:
        """Of that, the last so many bytes."""
        found = b""
        for token_id in reversed(token_ids):
            if len(found) >= most:
                break
            found = self._piece(token_id) + found
        return found[len(found) - most :] if len(found) > most else found

    def beginning_with(self, text: bytes) -> NDArray[np.int64]:
        """The tokens that begin with a text."""
        pieces, ids = self._ordered
        return ids[bisect_left(pieces, text) : bisect_left(pieces, text + APART)]

    def having(self, text: bytes) -> NDArray[np.int64]:
        """The tokens that have a text somewhere."""
        together, starts = self._together
        found, place = [], together.find(text)
        while place >= 0:
            token_id = bisect_left(starts, place + 1) - 1
            found.append(token_id)
            place = together.find(text, starts[token_id + 1]) if token_id + 1 < len(starts) else -1
        return np.array(found, np.int64)

    def _piece(self, token_id: int) -> bytes:
        """Nothing where it is no token."""
        return self.of_tokens[token_id] if 0 <= token_id < len(self.of_tokens) else b""

    @cached_property
    def _ordered(self) -> tuple[list[bytes], NDArray[np.int64]]:
        order = sorted(range(len(self.of_tokens)), key=self.of_tokens.__getitem__)
        return [self.of_tokens[token_id] for token_id in order], np.array(order)

    @cached_property
    def _together(self) -> tuple[bytes, list[int]]:
        """All of them, and where each begins."""
        starts = accumulate((len(piece) + len(APART) for piece in self.of_tokens[:-1]), initial=0)
        return APART.join(self.of_tokens), list(starts)


class StopStrings:
    """Texts that a target ends with: `StopStringCriteria` of transformers 5.23."""

    def __init__(self, strings: Iterable[str], pieces: Pieces) -> None:
        self._strings, self._pieces = [string.encode() for string in strings], pieces
        self._ends = {string[-1] for string in self._strings}
        self._most = max(map(len, self._strings)) - 1

    def ended_by(self, token_ids: Sequence[int]) -> bool:
        """Whether the last token completes one."""
        piece = self._pieces.text(token_ids[-1:])
        if self._ends.isdisjoint(piece):
            return False
        before = self._pieces.last(token_ids[:-1], self._most)
        return any(string in before[max(0, len(before) + 1 - len(string)) :] + piece for string in self._strings)


class Completions:
    """Which tokens would complete one of some texts."""

    def __init__(self, texts: Iterable[str], pieces: Pieces) -> None:
        self._pieces, encoded = pieces, {text.encode() for text in texts}
        self._most = max(map(len, encoded)) - 1
        self._rests: dict[bytes, list[bytes]] = {}
        """What is begun -> what is missing of it."""
        for text in encoded:
            for begun in range(1, len(text)):
                self._rests.setdefault(text[:begun], []).append(text[begun:])
        self.anywhere = np.unique(np.concatenate([pieces.having(text) for text in encoded]))
        """Tokens that have one of the texts."""
        self._completing = cache(self._that_complete)

    def after(self, token_ids: Sequence[int]) -> list[NDArray[np.int64]]:
        """The tokens that complete a text which these have begun."""
        tail = self._pieces.last(token_ids, self._most)
        begun = (tail[place:] for place in range(len(tail)))
        return [self._completing(text) for text in begun if text in self._rests]

    def _that_complete(self, begun: bytes) -> NDArray[np.int64]:
        return np.concatenate([self._pieces.beginning_with(rest) for rest in self._rests[begun]])
