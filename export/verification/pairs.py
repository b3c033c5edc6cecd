"""The languages that sample sentences are translated between, and what a request in them is decoded with."""

from collections.abc import Sequence
from itertools import cycle, islice

from engine.targets import TargetRules, language_rules, target_rules
from models.checkpoint import Checkpoint
from models.package.derived import vocabulary
from models.package.manifest import GenerationDefaults

PAIRS = 4
"""Of a model whose decoder is told languages: each pair is a batch of its own for transformers, and their graphs are
the same."""
Pair = tuple[str, str]
"""BCP-47 tags of a source and of its target."""


def sample_pairs(checkpoint: Checkpoint, count: int) -> list[Pair]:
    """Of each of `count` sentences: every target language in turn, or PAIRS of them, from all over the list.

    Where there are as many sources, those of a pair differ.
    """
    sources, targets = checkpoint.source_languages or ("",), checkpoint.target_languages or ("",)
    if checkpoint.languages:
        sources, targets = _spread(sources), _spread(targets)
    return list(islice(zip(cycle((*sources[1:], *sources[:1])), cycle(targets), strict=False), count))


def sample_rules(checkpoint: Checkpoint, generation: GenerationDefaults, pairs: Sequence[Pair]) -> list[TargetRules]:
    """Those that a request of each pair is decoded with."""
    plain = target_rules(vocabulary(checkpoint.config), generation)
    told = language_rules(plain, checkpoint.languages)
    return [told.get(target, plain) for _, target in pairs]


def _spread(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(tags[place * len(tags) // PAIRS] for place in range(PAIRS)) if len(tags) > PAIRS else tags
