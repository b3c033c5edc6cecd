"""What the encoder of the standard graphs gives of a source."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class CpuSource:
    """An encoded source, as the encoder graph gave it."""

    def __init__(
        self,
        hidden: NDArray[np.floating],
        encoded: Mapping[str, NDArray[np.floating]],
        allowed: NDArray[np.int64] | None = None,
    ) -> None:
        self._hidden = hidden
        self.encoded = encoded
        """What cache tensors start with, by the name of the encoder output: each of one sentence [1, ...]."""
        self.allowed = allowed
        """The tokens that its target may have, if the package has a shortlist."""

    @property
    def length(self) -> int:
        """Tokens of the source."""
        return int(self._hidden.shape[1])

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: only its own."""
        return self.length

    def hidden(self) -> NDArray[np.float32]:
        """The last hidden states of the source tokens [tokens, width]."""
        hidden: NDArray[np.float32] = self._hidden[0].astype(np.float32, copy=False)
        return hidden
