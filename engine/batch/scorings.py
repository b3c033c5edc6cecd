"""Requests whose targets are being scored, one after another, a part at a time: rows that decode wait for no more."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Decoder, S
from engine.devices.session import is_out_of_memory
from engine.errors import EngineError, Late, NotFinite, OutOfMemory
from engine.request import Event, Failed, Score, Scored, Timings


@dataclass(slots=True, eq=False)
class Scoring:
    """A request, and how far it is."""

    request: Score
    parts: Iterator[dict[int, NDArray[np.float32]]]
    queued: float
    """Seconds from arrival to the start of the encoder run."""
    encoded: float
    """Seconds of the encoder run."""
    joined: float
    """When that ended."""
    found: dict[int, NDArray[np.float32]] = field(default_factory=dict)


class Scorings(Generic[S]):
    """Used by one thread."""

    def __init__(self, decoder: Decoder[S]) -> None:
        self._decoder = decoder
        self.waiting: deque[Scoring] = deque()
        """Always the same one: a running batch looks at it in every step."""

    def join(self, request: Score, source: S, queued: float, encoded: float, joined: float) -> None:
        """Takes a request whose source is encoded."""
        parts = self._decoder.score(source, request.fed_ids, request.targets)
        self.waiting.append(Scoring(request, parts, queued, encoded, joined))

    def drop_cancelled(self) -> list[Score]:
        """Those that nobody waits for."""
        cancelled = [scoring for scoring in self.waiting if scoring.request.cancelled]
        for scoring in cancelled:
            self.waiting.remove(scoring)
        return [scoring.request for scoring in cancelled]

    def run(self) -> tuple[Score, Event] | None:
        """Computes a part of the first one's scores. Returns its answer if that was the last part."""
        scoring = self.waiting[0]
        event = _late(scoring.request) or _go_on(scoring)
        if event is None:
            return None
        self.waiting.popleft()
        return scoring.request, event


def _late(request: Score) -> Failed | None:
    late = 0.0 if request.deadline is None else time.perf_counter() - request.deadline
    return Failed(Late(0.0, -late)) if late > 0 else None


def _go_on(scoring: Scoring) -> Event | None:
    try:
        scoring.found |= next(scoring.parts)
    except EngineError as error:
        return Failed(error)
    except Exception as error:  # the errors of ONNX Runtime have nothing else in common
        if not is_out_of_memory(error):
            raise
        return Failed(OutOfMemory(scoring.request.given_tokens))
    if len(scoring.found) < len(scoring.request.targets):
        return None
    found = [scoring.found[index] for index in range(len(scoring.found))]
    if not all(np.isfinite(scores).all() for scores in found):
        return Failed(NotFinite())
    timings = Timings(scoring.queued, scoring.encoded, time.perf_counter() - scoring.joined, 0)
    return Scored(tuple(tuple(scores.tolist()) for scores in found), timings)
