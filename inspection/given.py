"""What the graphs that look at given targets tell of a hypothesis, of the step that chose each of its tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.decoder import GivenTargets
from models.decoding import Decoding


class Given(NamedTuple):
    """None: the package does not tell."""

    attention: NDArray[np.float32] | None = None
    """Where every head of every layer looks in the source [layers, heads, target, source]; of one stack, in what was
    fed behind it too [layers, heads, target, source + fed - 1]."""
    back: NDArray[np.float32] | None = None
    """In what was fed [layers, heads, target, fed]."""
    states: NDArray[np.float32] | None = None
    """After the last layer [target, width]."""


def look(
    given: GivenTargets,
    source_ids: Sequence[int],
    hidden: NDArray[np.float32],
    prefix: Sequence[int],
    target: Sequence[int],
) -> Given:
    """hidden: of the source [source, width]. prefix: what is fed before the target's first token."""
    # One stack has read the first token of the prefix: it is the source's last one.
    if (found := given.read_on(source_ids, (*prefix[1:], *target[:-1]))) is not None:
        return Given(found.attention[:, :, -len(target) :], None, found.states[-len(target) :])
    attention, first = None, len(prefix) - 1
    if given.attends:
        [looked] = given.look(hidden, prefix, [target], Decoding(with_attention=True))
        attention = looked[0].attention
    back, states = given.look_back(hidden, prefix, target), given.states(hidden, prefix, target)
    return Given(attention, None if back is None else back[:, :, first:], None if states is None else states[first:])
