"""Greedy and beam search: which hypotheses continue, and when to stop. Sees what was found of its rows, never a model.

Token for token the `generate` of Hugging Face transformers 5.23 on one sentence: `GenerationMixin._sample` without
sampling, and `GenerationMixin._beam_search`.
"""

from engine.search.beam import BeamSearch
from engine.search.greedy import GreedySearch
from engine.search.search import Search
from engine.targets import TargetRules
from models.decoding import Decoding


def open_search(decoding: Decoding, rules: TargetRules) -> Search:
    """Starts the search of one sentence."""
    return GreedySearch(decoding, rules) if decoding.num_beams == 1 else BeamSearch(decoding, rules)
