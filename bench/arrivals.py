"""When calls are due that come by chance."""

import random
from typing import Literal

BURST = 16
"""Calls that arrive at once."""

Arrivals = Literal["Poisson", "bursts"]


def arrivals(kind: Arrivals, count: int, rate: float, seed: int) -> list[float]:
    """When calls are due, in seconds: `rate` a second on average, one by one or BURST at once, at random times."""
    draw, together = random.Random(seed), BURST if kind == "bursts" else 1
    due, now = list[float](), 0.0
    while len(due) < count:
        due += [now] * together
        now += draw.expovariate(rate / together)
    return due[:count]
