"""The learning rate (Vaswani et al. 2017, 5.3), with the peak given instead of width ** -0.5 * warmup ** -0.5."""

import math

from training.config import Optimizer


def learning_rate(step: int, settings: Optimizer, max_steps: int) -> float:
    """Of step 1, 2, ...: linear warm-up, then the inverse square root, and a linear cool-down over the last steps."""
    warmup = settings.warmup_steps
    rate = settings.peak_learning_rate * min(step / warmup, math.sqrt(warmup / step))
    left = max_steps - step + 1
    return rate * left / (settings.cooldown_steps + 1) if left <= settings.cooldown_steps else rate
