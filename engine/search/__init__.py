"""Greedy and beam search: which hypotheses continue, and when to stop. Sees what was found of its rows, never a model.

Token for token the `generate` of Hugging Face transformers 5.23 on one sentence: `GenerationMixin._sample` without
sampling, and `GenerationMixin._beam_search`. Greedy search is one for all rows of a batch (`GreedyRows`); every other
one is an object of its own.
"""

from engine.search.beam import BeamSearch
from engine.search.search import Search
from engine.targets import TargetRules
from models.decoding import Decoding


def is_greedy(decoding: Decoding) -> bool:
    """Whether `GreedyRows` does it."""
    return decoding.num_beams == 1


def open_search(decoding: Decoding, rules: TargetRules) -> Search:
    """Starts the search of one sentence, if it is not greedy."""
    return BeamSearch(decoding, rules)
