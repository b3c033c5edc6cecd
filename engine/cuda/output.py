"""The output layer on a device, where a package has a shortlist.

A device computes the logits of the whole vocabulary, so that the shapes of a step never change: it has all rows of the
output layer, in their order, and the place of a token is its id. What a row may choose from is the row's own.
"""

from collections.abc import Sequence

import numpy as np

from engine.cuda.runtime import NUMBER_TYPES, Block, DeviceRuntime, Tensor
from engine.devices.buffers import Buffer
from engine.devices.session import run_options
from engine.devices.sizing import ID_BYTES
from models.decoding import MOST_TOKENS
from models.package import signature
from models.package.declared.elements import INT64
from models.package.declared.graphs import GraphsSpec
from models.package.graph_files import Graph
from models.package.shortlist import Shortlist
from models.package.signature import MAX_CANDIDATES, NO_TOKEN

PLACES_STEP = 256
"""Lists are padded to multiples of this: few shapes, so the arena of the copies does not grow."""


def most_allowed(shortlist: Shortlist, source_tokens: int, target_tokens: int) -> int:
    """Places that a row needs for what it is allowed, for what its request names, and for all candidates.

    Named are a prefix, phrases that fit into a target, and those of a bias.
    """
    most = shortlist.most_allowed(source_tokens) + 2 * target_tokens + MOST_TOKENS
    return max(min(most, shortlist.vocabulary.target_size), MAX_CANDIDATES)


class CudaOutput:
    """The output layer, and lists of what rows are allowed."""

    def __init__(
        self, runtime: DeviceRuntime, graph: Graph, shortlist: Shortlist, spec: GraphsSpec, places: int
    ) -> None:
        """`places`: of a row, see `most_allowed`."""
        self.places, self._runtime, self._shortlist = places, runtime, shortlist
        tokens, numbers = spec.vocabulary.target_size, NUMBER_TYPES[spec.precision.weights]
        shapes = (tokens, spec.width), (tokens,)
        self._buffers = [runtime.allocate(int(np.prod(shape)) * numbers.size_bytes) for shape in shapes]
        self.rows: dict[str, Tensor] = {
            name: (numbers.element, shape, buffer.address)
            for name, shape, buffer in zip(signature.OUTPUT_ROWS, shapes, self._buffers, strict=True)
        }
        """The tensors that the decoder graph takes."""
        [name] = signature.OUTPUT_INPUTS
        ids = INT64, (tokens,), runtime.constant(np.arange(tokens))
        session = runtime.open_session(graph)
        session.run_with_iobinding(runtime.binding(session, {name: ids}, self.rows), run_options())
        runtime.transfers.wait()
        nothing = runtime.constant(np.full(places, NO_TOKEN))
        self.nothing = Block(nothing, tensors=1, rows=1, heads=1, places=places, slot_bytes=ID_BYTES)
        """A row that is allowed no token."""

    def send(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]]) -> tuple[Block, Buffer]:
        """Enqueues the copy of what these sources are allowed, and what is named [1, sources, 1, places, 1]."""
        allowed = [self._shortlist.allowed(source, names) for source, names in zip(sources, named, strict=True)]
        longest = max(map(len, allowed))
        places = min(-(-longest // PLACES_STEP) * PLACES_STEP, self.places)
        array = np.full((len(sources), places), NO_TOKEN)
        for row, ids in enumerate(allowed):
            array[row, : len(ids)] = ids
        buffer = self._runtime.allocate(array.nbytes)
        self._runtime.outbox.send_to(array, buffer.address)
        return Block(buffer.address, 1, len(sources), 1, places, ID_BYTES), buffer
