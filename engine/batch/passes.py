"""Requests with targets that are looked at, one after another, a part at a time: rows that decode wait for no more.

Those of a `Score` are given. Those of a `Translate` were found, and are looked at for where their tokens look.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Decoder
from engine.devices.session import is_out_of_memory
from engine.errors import EngineError, Late, NotFinite, OutOfMemory
from engine.links import Looked
from engine.request import Event, Failed, Finished, Request, Score, Scored, Timings, Translate


@dataclass(slots=True, eq=False)
class Pass:
    """A request, and how far it is."""

    request: Request
    targets: int
    parts: Iterator[dict[int, Any]]
    """What is found of targets, by their indices."""
    answer: Callable[[Sequence[Any], float], Event]
    """What is said of all of them, at this time."""
    found: dict[int, Any] = field(default_factory=dict)


class Passes:
    """Used by one thread."""

    def __init__(self, decoder: Decoder[Any]) -> None:
        self._decoder = decoder
        self.waiting: deque[Pass] = deque()
        """Always the same one: a running batch looks at it in every step."""

    def score(self, request: Score, hidden: NDArray[np.float32], queued: float, encoded: float, joined: float) -> None:
        """Takes a request whose source is encoded, into `hidden` [tokens, width].

        Seconds from its arrival to the start of the encoder run, and of that, which ended when it `joined`.
        """
        parts = self._decoder.given_targets.score(hidden, request.fed_ids, request.targets)
        answer = partial(_scored, Timings(queued, encoded, 0.0, 0), joined)
        self.waiting.append(Pass(request, len(request.targets), parts, answer))

    def look(self, request: Translate, hidden: NDArray[np.float32], finished: Finished, now: float) -> None:
        """Takes a request whose hypotheses are found."""
        targets = [one.token_ids for one in finished.hypotheses]
        parts = self._decoder.given_targets.look(hidden, request.rules.prefix_ids, targets)
        self.waiting.append(Pass(request, len(targets), parts, partial(_looked, finished, now)))

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
        if len(one.found) < one.targets:
            return None
        return one.answer([one.found[index] for index in range(one.targets)], time.perf_counter())
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


def _looked(finished: Finished, began: float, found: Sequence[Looked], now: float) -> Event:
    hypotheses = tuple(replace(one, links=of.links) for one, of in zip(finished.hypotheses, found, strict=True))
    timings = replace(finished.timings, decode=finished.timings.decode + now - began)
    return replace(finished, hypotheses=hypotheses, timings=timings)
