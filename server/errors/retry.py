"""When somebody who was refused is to come again."""

import random
from collections.abc import Callable

JITTER = 0.25
"""Most that is added to an advice, as a share of it."""


def apart(seconds: float, chance: Callable[[], float] = random.random) -> float:
    """An advice, longer by chance: those who were refused at one moment do not come back in another one."""
    return seconds * (1 + JITTER * chance())
