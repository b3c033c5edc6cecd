"""What every search counts with: the score of a hypothesis, and how many of its tokens the model chooses."""

import math
from collections.abc import Sequence

from engine.request import FinishReason
from engine.targets import TargetRules
from models.decoding import Decoding

NO_TOKEN = -2
"""Not even NOT_FINITE."""
NEVER = 2**62
"""A step that is not reached, by far."""


def score(log_prob: float, length: int, length_penalty: float) -> float:
    """log_prob / length^length_penalty, or its limit where the power is too large or too small for a float."""
    try:
        return log_prob / math.pow(length, length_penalty)
    except OverflowError:
        return 0.0
    except ZeroDivisionError:
        return -math.inf


def free_tokens(decoding: Decoding, rules: TargetRules) -> int:
    """How many tokens at most the model chooses."""
    return decoding.max_new_tokens - (rules.forced_end_id is not None)


def finish_reason(chosen: Sequence[int], rules: TargetRules) -> FinishReason:
    """Why a hypothesis of these tokens is one. If nothing else ends it, it is its length."""
    if chosen and chosen[-1] in rules.end_ids:
        return FinishReason.END_TOKEN
    return FinishReason.STOP_STRING if rules.stopped_by(chosen) else FinishReason.LENGTH
