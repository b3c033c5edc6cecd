"""What the rows of a running batch may choose from, where a package has a shortlist.

A step computes the logits of every token that some row is allowed, and no others: those rows of the output layer lie
together here, and each row of the batch knows its places among them. Most sentences are allowed a fortieth of the
vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

from engine.devices.session import CPU, open_session
from models.package import signature
from models.package.graph_files import Graph
from models.package.signature import MAX_CANDIDATES, NO_TOKEN

STEP = 256
"""Numbers of tokens and of places are multiples of this: every change of them makes new bindings."""
ROOM = 1.5
"""For tokens that join, over those that are in use. When it is used up, those that are not in use leave."""


class OutputLayer:
    """The graph that gives rows of the output layer."""

    def __init__(self, graph: Graph, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._session = open_session(graph, CPU)

    def zeros(self, tokens: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Room for rows of so many tokens."""
        weight, bias = self.rows(np.zeros(1, np.int64))
        return np.zeros((tokens, weight.shape[1]), weight.dtype), np.zeros(tokens, bias.dtype)

    def rows(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Weights [tokens, width] and biases [tokens] of these tokens."""
        [name] = signature.OUTPUT_INPUTS
        weight, bias = self._session.run(signature.OUTPUT_ROWS, {name: ids})
        return weight, bias


class AllowedTokens:
    """The tokens of every row, and their rows of the output layer."""

    def __init__(self, output: OutputLayer, rows: int) -> None:
        self._output = output
        self._ids: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * rows
        """What each row is allowed."""
        self._place = np.full(output.vocab_size, NO_TOKEN)
        """Where each token of the vocabulary is."""
        self._tokens = 0
        self.put(0, self._ids[0])

    def put(self, row: int, ids: NDArray[np.int64]) -> bool:
        """Allows these tokens to a row behind all that are in use.

        True if `inputs` are others now, and right for this row and those before it only.
        """
        self._ids[row] = ids
        new = ids[self._place[ids] == NO_TOKEN]
        if row == 0 or self._tokens + len(new) > len(self._bias) or len(ids) > self._allowed.shape[1]:
            self._rebuild(row + 1)
            return True
        before = self.bound
        self._add(new)
        self._write(row)
        return self.bound != before

    def copy(self, source: int, target: int) -> None:
        """Allows row `target` what row `source` is allowed."""
        self._ids[target] = self._ids[source]
        self._allowed[target] = self._allowed[source]

    def inputs(self, rows: int) -> dict[str, NDArray[np.generic]]:
        """What the decoder graph takes besides, for the first `rows` rows."""
        names = *signature.OUTPUT_ROWS, signature.ALLOWED
        arrays = self._weight[: self.bound], self._bias[: self.bound], self._allowed[:rows]
        return dict(zip(names, arrays, strict=True))

    def token_ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens at these places."""
        return self._token_ids[places]

    def spread(self, logits: NDArray[np.floating], rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Logits of places [rows and one more, places] as those of some rows' tokens [some, vocabulary].

        -inf: not allowed
        """
        found = np.full((len(rows), len(self._place)), -np.inf, np.float32)
        for one, row in enumerate(rows.tolist()):
            ids = self._ids[row]
            found[one, ids] = logits[row, self._place[ids]]
        return found

    @property
    def bound(self) -> int:
        """Tokens whose logits are computed."""
        return _round_up(self._tokens)

    def _rebuild(self, live: int) -> None:
        """Begins anew with what the first rows are allowed."""
        ids = np.unique(np.concatenate(self._ids[:live]))
        room = min(_round_up(int(ROOM * len(ids))), _round_up(len(self._place)))
        self._weight, self._bias = self._output.zeros(room)
        self._token_ids = np.zeros(room, np.int64)
        places = _round_up(max(map(len, self._ids[:live])))
        self._allowed = np.full((len(self._ids), places), NO_TOKEN)
        self._place[:] = NO_TOKEN
        self._tokens = 0
        self._add(ids)
        for row in range(live):
            self._write(row)

    def _add(self, ids: NDArray[np.int64]) -> None:
        """Takes tokens in."""
        places = slice(self._tokens, self._tokens + len(ids))
        self._weight[places], self._bias[places] = self._output.rows(ids)
        self._token_ids[places] = ids
        self._place[ids] = np.arange(places.start, places.stop)
        self._tokens = places.stop

    def _write(self, row: int) -> None:
        ids = self._ids[row]
        self._allowed[row, : len(ids)] = self._place[ids]
        self._allowed[row, len(ids) :] = NO_TOKEN


def _round_up(size: int) -> int:
    """At least what a step needs to have all candidates."""
    return -(-max(size, MAX_CANDIDATES) // STEP) * STEP
