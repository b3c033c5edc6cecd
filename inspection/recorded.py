"""A decoder that writes down what every step was fed, what it found, and how its rows went on.

So what a report shows is the search that a server runs, and no second one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cpu.cache import CpuCache
from engine.decoder import Ask, Cache, Decoder, Found, GivenTargets, Parents, TokenIds
from engine.devices.session import Device


@dataclass(slots=True)
class Step:
    """One step of the rows of a search."""

    fed: NDArray[np.int64]
    """What each row was fed [rows]."""
    token_ids: NDArray[np.int64]
    """The most probable next tokens of each, best first [rows, alternatives]."""
    log_probs: NDArray[np.float32]
    attention: NDArray[np.float32] | None
    """Where each looks in the source [rows, source], if the package tells."""
    states: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Those of a recurrent decoder's cells after the step [rows, width], by name."""
    parents: Sequence[int] | None = None
    """Row i of the next step goes on with row parents[i]. None: every row with itself."""

    def log_prob(self, row: int, token: int) -> float | None:
        """Of a next token of a row. None: it is not among the most probable ones."""
        places = np.flatnonzero(self.token_ids[row] == token)
        return float(self.log_probs[row, places[0]]) if len(places) else None


class RecordedDecoder:
    """A `Decoder`. For one request at a time."""

    def __init__(self, decoder: Decoder[Any], alternatives: int, attention: bool) -> None:
        """`alternatives`: next tokens that are wanted of each row, at least. attention: it is wanted of each step."""
        self._decoder, self._alternatives, self._attention = decoder, alternatives, attention
        self.steps: list[Step] = []

    @property
    def device(self) -> Device:
        return self._decoder.device

    @property
    def row_tokens(self) -> int:
        return self._decoder.row_tokens

    @property
    def gives_logits(self) -> bool:
        return self._decoder.gives_logits

    @property
    def given_targets(self) -> GivenTargets:
        return self._decoder.given_targets

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[Any]:
        return self._decoder.encode(sources, named)

    def open_cache(self, rows: int) -> "RecordedCache":
        return RecordedCache(self._decoder.open_cache(rows), self.steps, self._alternatives, self._attention)

    def close(self) -> None:
        self._decoder.close()


class RecordedCache:
    """A `Cache`, whose steps are written down."""

    def __init__(self, cache: Cache[Any], steps: list[Step], alternatives: int, attention: bool) -> None:
        self._cache, self._steps, self._alternatives, self._attention = cache, steps, alternatives, attention
        self._fed = np.zeros(0, np.int64)

    @property
    def live(self) -> int:
        return self._cache.live

    def join(self, source: Any) -> int:
        return self._cache.join(source)

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        self._fed = np.array(token_ids, np.int64)
        more = replace(ask, best=max(ask.best, self._alternatives), attention=self._attention or ask.attention)
        self._cache.begin_step(token_ids, more)

    def end_step(self) -> Found:
        found = self._cache.end_step()
        attention = None if found.attention is None else found.attention.copy()
        states = self._cache.states() if isinstance(self._cache, CpuCache) else {}
        self._steps.append(Step(self._fed, found.token_ids.copy(), found.log_probs.copy(), attention, states))
        return found

    def take(self, parents: Parents) -> int:
        self._steps[-1].parents = tuple(parents)
        return self._cache.take(parents)
