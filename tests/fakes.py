"""A decoder that copies its source, so that every test knows the right answer, and a gate that stops time at a step."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Ask, Found, Parents, TokenIds
from engine.devices.session import CPU
from engine.links import Looked, ReadOn, coverage, links
from engine.targets import TargetRules
from models.decoding import Decoding

WAIT_S = 60.0
"""Longest wait for something that must happen. Reaching it is a failure, not a pause."""

ROW_BYTES = 8
"""What a cache says that it copies of each row that moves."""
BEST, SECOND = -0.125, -8.0
"""Log-probability of the token that copies the source, and of the best one that does not."""


def rules_of(
    end_id: int, forced_end_id: int | None = None, suppressed_ids: Iterable[int] = (), start_id: int = 99
) -> TargetRules:
    """Of a model with one end token, and no more of a prefix than its start token."""
    return TargetRules((start_id,), frozenset({end_id}), forced_end_id, frozenset(suppressed_ids))


class Gate:
    """Where every step of every worker passes. Open at first."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._allowed: int | None = None
        """Steps that may still pass; None: all."""
        self._held = 0
        """Steps that are waiting."""

    def close(self) -> None:
        """Holds every step from now on."""
        self._allow(0)

    def open(self) -> None:
        """Lets all steps through."""
        self._allow(None)

    def let(self, steps: int) -> None:
        """Lets so many steps through, and holds the next."""
        self._allow(steps)

    def wait_until_held(self, steps: int = 1) -> None:
        """Returns once so many workers stand before the gate with no step left to make."""
        with self._change:
            assert self._change.wait_for(lambda: self._allowed == 0 and self._held >= steps, WAIT_S), "no step came"

    def pass_through(self) -> None:
        """One step, on a worker's thread."""
        with self._change:
            self._held += 1
            self._change.notify_all()
            assert self._change.wait_for(lambda: self._allowed != 0, WAIT_S), "the gate stayed closed"
            self._held -= 1
            if self._allowed is not None:
                self._allowed -= 1
            self._change.notify_all()

    def _allow(self, steps: int | None) -> None:
        with self._change:
            self._allowed = steps
            self._change.notify_all()


@dataclass(frozen=True)
class CopySource:
    """A source, kept as it is."""

    source_ids: tuple[int, ...]

    @property
    def computed_tokens(self) -> float:
        return len(self.source_ids)

    def hidden(self) -> NDArray[np.float32]:
        """Four numbers of every token that tell sources apart [tokens, 4]."""
        ids, places = np.array(self.source_ids, np.float32), np.arange(len(self.source_ids), dtype=np.float32)
        return np.stack([ids, places, -ids, np.ones_like(ids)], axis=1)


@dataclass
class CopyDecoder:
    """Proposes the source's tokens, one after the other, and the end token ever after."""

    vocabulary_size: int = 32001
    gate: Gate = field(default_factory=Gate)
    encode_error: Exception | None = None
    """Raised by the next encoder run."""
    step_error: Exception | None = None
    """Raised by the next step."""
    fault: Callable[[Sequence[tuple[int, ...]]], None] | None = None
    """Called in every step with the sources of its rows: may raise, or hang."""

    device = CPU
    row_tokens = 256
    gives_logits = False
    scores = aligns = covers = attends = True

    @property
    def given_targets(self) -> "CopyDecoder":
        return self

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CopySource]:
        if self.encode_error is not None:
            raise self.encode_error
        return [CopySource(tuple(source_ids)) for source_ids in sources]

    def close(self) -> None:
        """Nothing outlives it."""

    def score(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> Iterator[dict[int, NDArray[np.float32]]]:
        """A target a time. A token that stands at its place in the source, or ends it, is the best one."""
        source_ids = [int(token_id) for token_id in hidden[:, 0]]
        for index, target in self._each(targets):
            pairs = zip_longest(target, source_ids[: len(target)], fillvalue=source_ids[-1])
            yield {index: np.array([BEST if ours == theirs else SECOND for ours, theirs in pairs], np.float32)}

    def look(
        self,
        hidden: NDArray[np.float32],
        prefix: Sequence[int],
        targets: Sequence[Sequence[int]],
        decoding: Decoding,
    ) -> Iterator[dict[int, Looked]]:
        """A target a time. The one head of the one layer looks where it copies from."""
        for index, target in self._each(targets):
            weights = np.zeros((1, 1, len(target), len(hidden)), np.float32)
            for place in range(len(target)):
                weights[0, 0, place, min(place, len(hidden) - 1)] = 1
            told = links(weights[0, 0]) if decoding.with_alignment else ()
            seen = coverage(weights[0, 0]) if decoding.coverage_penalty else 0.0
            yield {index: Looked(told, seen, weights if decoding.with_attention else None)}

    def source_attention(self, source_ids: Sequence[int]) -> NDArray[np.float32]:
        """Every token looks at itself."""
        return np.eye(len(source_ids), dtype=np.float32)[None, None]

    def look_back(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], target: Sequence[int]
    ) -> NDArray[np.float32] | None:
        """It does not look there."""
        return None

    def states(
        self, hidden: NDArray[np.float32], prefix: Sequence[int], target: Sequence[int]
    ) -> NDArray[np.float32] | None:
        """It has none."""
        return None

    def read_on(self, source_ids: Sequence[int], fed_ids: Sequence[int]) -> ReadOn | None:
        """It is no stack."""
        return None

    def _each(self, targets: Sequence[Sequence[int]]) -> Iterator[tuple[int, Sequence[int]]]:
        for index, target in enumerate(targets):
            self.gate.pass_through()
            if self.step_error is not None:
                raise self.step_error
            yield index, target

    def open_cache(self, rows: int) -> "CopyCache":
        return CopyCache(self, rows)


class CopyCache:
    """Each row is its source and its position."""

    def __init__(self, decoder: CopyDecoder, capacity: int) -> None:
        self._decoder = decoder
        self._capacity = capacity
        self.rows: list[tuple[CopySource, int]] = []
        self._begun = 0
        """Found wanted of the step that runs. 0: none runs."""

    @property
    def live(self) -> int:
        return len(self.rows)

    def join(self, source: CopySource) -> int:
        assert self.live < self._capacity, f"{self._capacity} rows are all there are"
        self.rows.append((source, 0))
        return self.live - 1

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        assert len(token_ids) == self.live > 0
        self._begun = ask.best

    def end_step(self) -> Found:
        k, self._begun = self._begun, 0
        assert k, "no step was begun"
        self._decoder.gate.pass_through()
        if self._decoder.step_error is not None:
            raise self._decoder.step_error
        if self._decoder.fault is not None:
            self._decoder.fault([memory.source_ids for memory, _ in self.rows])
        best = np.array([memory.source_ids[: position + 1][-1] for memory, position in self.rows])
        ranks = np.arange(k)
        self.rows = [(memory, position + 1) for memory, position in self.rows]
        return Found(
            token_ids=(best[:, None] + ranks) % self._decoder.vocabulary_size,
            log_probs=np.broadcast_to(np.where(ranks == 0, BEST, SECOND - ranks), (self.live, k)).astype(np.float32),
        )

    def take(self, parents: Parents) -> int:
        assert len(parents) <= self._capacity
        assert all(row not in parents for row, parent in enumerate(parents) if row != parent), "a row is read too late"
        self.rows = [self.rows[parent] for parent in parents]
        return ROW_BYTES * sum(int(row != parent) for row, parent in enumerate(parents))
