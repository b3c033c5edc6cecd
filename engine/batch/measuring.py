"""How long an engine that has nothing else to do takes, for sentences of nobody."""

import time

from engine.decoder import Ask, Cache, Decoder, S
from engine.queueing.cost import Measured

MEASURED_ROWS, MEASURED_TOKENS, MEASURED_STEPS = 8, 24, 3
"""Rows, source tokens of each, and steps of them, that costs are measured with: enough to tell, and done in no time."""


def measure(decoder: Decoder[S], cache: Cache[S], rows: int, source_tokens: int) -> Measured:
    """Decodes sentences, and forgets them. The cache has room for so many rows of so many tokens, and none is live."""
    rows, tokens = min(rows, MEASURED_ROWS), min(source_tokens, MEASURED_TOKENS)
    sources = [(0,) * tokens] * rows
    began = time.perf_counter()
    encoded = decoder.encode(sources)
    token = (time.perf_counter() - began) / (tokens * rows)
    cache.join(encoded[0])
    one = _timed_step(cache, 1)
    for source in encoded[1:]:
        cache.join(source)
    all_rows = _timed_step(cache, rows)
    cache.take([])
    each = max(all_rows - one, 0.0) / max(rows - 1, 1)
    return Measured(max(one - each, one / 10), max(each, one / 1000), token)


def probe(cache: Cache[S], source: S) -> None:
    """Decodes one token of a source. Which token is fed does not matter."""
    cache.join(source)
    cache.begin_step([0], Ask(outlook=None))
    cache.end_step()
    cache.take([])


def _timed_step(cache: Cache[S], rows: int) -> float:
    """Seconds of a step of so many rows: of several the shortest."""
    seconds = list[float]()
    for _ in range(MEASURED_STEPS):
        began = time.perf_counter()
        cache.begin_step([0] * rows, Ask(outlook=None))
        cache.end_step()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
