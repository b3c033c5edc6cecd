"""The encoder over sentences that lie one after another, without padding."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.host.positions import joined, runs
from models.package import signature
from models.package.declared.graphs import GraphsSpec
from models.package.declared.numbers import Precisions

HIDDEN_AND_CROSS = (signature.HIDDEN, signature.CROSS)
RUN_TOKENS, FP32_RUN_TOKENS = 192, 384
"""Most tokens of a run, but that a longer source runs alone. A run's tokens share the way of the weights to the
registers; with more of them their hidden states leave the second-level cache. Weights of fp32 have a longer way than
those of 8 or 16 bits. How sources are grouped changes no bit of what comes out."""

PACKED = "texts have other bits packed than alone on this processor"
"""Why the graph is refused whose operators ought to give them the same."""


class NativeSource:
    """An encoded source, as the encoder graph gave it."""

    def __init__(
        self, hidden: NDArray[np.float32], cross: NDArray[np.float32], allowed: NDArray[np.int32] | None = None
    ) -> None:
        self._hidden = hidden
        self.cross = cross
        """Keys and values of layer 0, of layer 1, ... [length, layers * 2 * width]."""
        self.allowed = allowed
        """The tokens that its target may have, if the package has a shortlist."""

    @property
    def length(self) -> int:
        """Tokens of the source."""
        return len(self._hidden)

    @property
    def computed_tokens(self) -> float:
        """Tokens that the encoder computed for it: only its own."""
        return self.length

    def hidden(self) -> NDArray[np.float32]:
        """The last hidden states of the source tokens [tokens, width]."""
        return self._hidden


def run_tokens(precision: Precisions) -> int:
    """How many tokens there are at most in a run of such a model."""
    return FP32_RUN_TOKENS if precision.weights == "fp32" else RUN_TOKENS


def encode(
    session: ort.InferenceSession,
    sources: Sequence[Sequence[int]],
    most: int = RUN_TOKENS,
    outputs: Sequence[str] = HIDDEN_AND_CROSS,
    spec: GraphsSpec | None = None,
) -> Iterator[list[NDArray[np.float32]]]:
    """Of every source, hidden states [tokens, width], and keys and values [tokens, layers * 2 * width].

    most: tokens of a run. outputs: of an encoder alone, the first is all that there is. spec: see
    `engine.host.positions.joined`
    """
    for group in runs([len(source) for source in sources], most):
        lengths = [len(source) for source in sources[group]]
        ids, positions = joined(sources[group], spec)
        arrays = ids, positions.astype(np.int32), np.array(lengths, np.int32)
        found = session.run(outputs, dict(zip(signature.NATIVE_ENCODER_INPUTS, arrays, strict=True)))
        for start, end in pairwise(accumulate(lengths, initial=0)):
            yield [each[start:end] for each in found]
