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


def candidates(decoding: Decoding, rules: TargetRules) -> int:
    """Tokens that a beam search must see of each of its rows.

    All children may come from one row, and it has each end token once. (The 2 * num_beams of transformers are for all
    rows together.) Any token may complete a text that ends a hypothesis. A group has fewer beams, but those before it
    may have made as many of a row's best dearer as they have hypotheses.
    """
    ending = len(rules.end_ids) if rules.stops is None else max(decoding.num_beams, len(rules.end_ids))
    return decoding.num_beams + ending + len(rules.suppressed_ids - rules.end_ids)


def finish_reason(chosen: Sequence[int], rules: TargetRules) -> FinishReason:
    """Why a hypothesis of these tokens is one. If nothing else ends it, it is its length: a prefix ends none."""
    if not chosen:
        return FinishReason.LENGTH
    if chosen[-1] in rules.end_ids:
        return FinishReason.END_TOKEN
    return FinishReason.STOP_STRING if rules.stopped_by(chosen) else FinishReason.LENGTH
