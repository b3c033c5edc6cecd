"""What a decoder gives that is an encoder alone."""

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Ask, Found, Parents, TokenIds


class EncodedText:
    """An encoded source."""

    def __init__(self, hidden: NDArray[np.floating]) -> None:
        self._hidden = hidden

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: only its own."""
        return len(self._hidden)

    def hidden(self) -> NDArray[np.float32]:
        """The last hidden states of the source tokens [tokens, width]."""
        hidden: NDArray[np.float32] = self._hidden.astype(np.float32, copy=False)
        return hidden


class NoCache:
    """Rows without a decoder, whose steps take no time and find token 0. Only probes and measurements make any."""

    def __init__(self) -> None:
        self.live = 0

    def join(self, source: EncodedText) -> int:
        """Starts a row."""
        self.live += 1
        return self.live - 1

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        """Does nothing."""

    def end_step(self) -> Found:
        """See the class."""
        return Found(np.zeros((self.live, 1), np.int64), np.zeros((self.live, 1), np.float32))

    def take(self, parents: Parents) -> int:
        """Leaves so many rows. Copies nothing."""
        self.live = len(parents)
        return 0
