"""Requests with targets that are looked at, one after another, a part at a time: rows that decode wait for no more.

Those of a `Score` are given. Those of a `Translate` were found, and are looked at for where their tokens look.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Decoder, GivenTargets
from engine.devices.session import is_out_of_memory
from engine.errors import EngineError, Late, NotFinite, OutOfMemory
from engine.links import Looked
from engine.logits.target_graphs import PASS_TOKENS
from engine.request import Event, Failed, Finished, Hypothesis, Request, Score, Scored, Timings, Translate
from models.decoding import Decoding


@dataclass(slots=True, eq=False)
class Pass:
    """A request, and how far it is."""

    request: Request
    count: int
    """What is looked at: its targets and, for some, its source."""
    parts: Iterator[dict[int, Any]]
    """What is found of them, by their places."""
    answer: Callable[[Sequence[Any], float], Event]
    """What is said of all of them, at this time."""
    found: dict[int, Any] = field(default_factory=dict)


class Passes:
    """Used by one thread."""

    def __init__(self, decoder: Decoder[Any]) -> None:
        self._decoder = decoder
        self.waiting: deque[Pass] = deque()
        """Always the same one: a running batch looks at it in every step."""

    @property
    def next_tokens(self) -> int:
        """Most tokens of the part that is next."""
        return PASS_TOKENS if self.waiting else 0

    def score(self, request: Score, hidden: NDArray[np.float32], queued: float, encoded: float, joined: float) -> None:
        """Takes a request whose source is encoded, into `hidden` [tokens, width].

        Seconds from its arrival to the start of the encoder run, and of that, which ended when it `joined`.
        """
        parts = self._decoder.given_targets.score(hidden, request.fed_ids, request.targets)
        answer = partial(_scored, Timings(queued, encoded, 0.0, 0), joined)
        self.waiting.append(Pass(request, len(request.targets), parts, answer))

    def look(self, request: Translate, hidden: NDArray[np.float32], finished: Finished, now: float) -> None:
        """Takes a request whose hypotheses are found."""
        given, decoding = self._decoder.given_targets, request.decoding
        targets = [one.token_ids for one in finished.hypotheses]
        parts, count = given.look(hidden, request.rules.prefix_ids, targets, decoding), len(targets)
        if decoding.with_attention:
            parts, count = chain(parts, _of_source(given, request, count)), count + 1
        self.waiting.append(Pass(request, count, parts, partial(_looked, finished, decoding, now)))

    def drop_cancelled(self) -> list[Request]:
        """Those that nobody waits for."""
        cancelled = [one for one in self.waiting if one.request.cancelled]
        for one in cancelled:
            self.waiting.remove(one)
        return [one.request for one in cancelled]

    def run(self) -> tuple[Request, Event] | None:
        """Computes a part of the first one's targets. Returns its answer if that was the last part."""
        first = self.waiting[0]
        event = _late(first.request) or _go_on(first)
        if event is None:
            return None
        self.waiting.popleft()
        return first.request, event


def _late(request: Request) -> Failed | None:
    late = 0.0 if request.deadline is None else time.perf_counter() - request.deadline
    return Failed(Late(0.0, -late)) if late > 0 else None


def _go_on(one: Pass) -> Event | None:
    try:
        one.found |= next(one.parts)
        if len(one.found) < one.count:
            return None
        return one.answer([one.found[place] for place in range(one.count)], time.perf_counter())
    except EngineError as error:
        return Failed(error)
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        if not is_out_of_memory(error):
            raise
        return Failed(OutOfMemory(one.request.given_tokens or len(one.request.source_ids)))


def _scored(timings: Timings, joined: float, found: Sequence[NDArray[np.float32]], now: float) -> Event:
    if not all(np.isfinite(scores).all() for scores in found):
        return Failed(NotFinite())
    return Scored(tuple(tuple(scores.tolist()) for scores in found), replace(timings, decode=now - joined))


def _of_source(given: GivenTargets, request: Request, place: int) -> Iterator[dict[int, Any]]:
    """A part that is the attention of a source to itself, in the place behind all targets."""
    yield {place: given.source_attention(request.source_ids)}


def _looked(finished: Finished, decoding: Decoding, began: float, found: Sequence[Any], now: float) -> Event:
    """found: of every hypothesis and, with attention, of the source."""
    of_source = found[-1].astype(np.float16) if decoding.with_attention else None
    pairs = zip(finished.hypotheses, found, strict=not decoding.with_attention)
    hypotheses = tuple(_as_looked_at(one, looked, decoding) for one, looked in pairs)
    if decoding.coverage_penalty and decoding.num_beams > 1:
        ranked = sorted(hypotheses, key=lambda one: -one.score)
        hypotheses = tuple(ranked[: decoding.num_return_sequences])
    timings = replace(finished.timings, decode=finished.timings.decode + now - began)
    return replace(finished, hypotheses=hypotheses, timings=timings, source_attention=of_source)


def _as_looked_at(hypothesis: Hypothesis, looked: Looked, decoding: Decoding) -> Hypothesis:
    attention = None if looked.attention is None else looked.attention.astype(np.float16)
    score = hypothesis.score + decoding.coverage_penalty * looked.coverage
    return replace(hypothesis, score=score, links=looked.links, attention=attention)
