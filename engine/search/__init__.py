"""Greedy and beam search: which hypotheses continue, and when to stop. Sees what was found of its rows, never a model.

Token for token the `generate` of Hugging Face transformers 5.23 on one sentence: `GenerationMixin._sample` without
sampling, and `GenerationMixin._beam_search`. Each is one for all rows of a running batch: `GreedyRows`, `BeamRows`.
Beams in groups, diverse beam search, are as in transformers 4, which had them last.
"""
