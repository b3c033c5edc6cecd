"""Chooses the heads that align: by names and numbers, which translations copy, so that their partners are known."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from models.package.declared.attention import Aligner
from models.tokenizers.tokenizer import Span

LEAST_RIGHT = 0.95
"""Share of copied tokens whose partner an aligner must find."""
ALIKE = 0.01
"""Share of copied tokens by which those that find their partners about equally well may differ."""
LEAST_TOKENS = 20
"""Fewer copied tokens prove nothing."""
WORD = re.compile(r"\w+(?:[.,:'-]\w+)*")


@dataclass(frozen=True)
class Sentence:
    """A text and its translation, token by token."""

    source: str
    target: str
    source_spans: Sequence[Span]
    target_spans: Sequence[Span]
    attention: NDArray[np.float32]
    """[layers, heads, target, source]"""


def choose_aligner(sentences: Iterable[Sentence]) -> Aligner | None:
    """Of those that find about as many partners as the best does, what is surest where it looks.

    Tried are every head, every two heads of a layer, and all of a layer. Heads that find names are not yet right on
    other words, and sharp ones may look at a neighbour; together the two choose well (docs/experiments.md).
    None: nothing finds enough, or there are too few tokens to tell.
    """
    sentences = list(sentences)
    if not sentences:
        return None
    layers, heads = sentences[0].attention.shape[:2]
    chosen = [*combinations_with_replacement(range(heads), 2), tuple(range(heads))]
    shares = np.array([[heads_of.count(head) / len(heads_of) for head in range(heads)] for heads_of in chosen])
    right, sureness = np.zeros((layers, len(chosen)), int), np.zeros((layers, len(chosen)))
    tokens = 0
    for sentence in sentences:
        partners = dict(copied(sentence))
        tokens += len(partners)
        for layer, attention in enumerate(sentence.attention):
            looks = np.einsum("ch,hts->cts", shares, attention)
            best = looks.argmax(2)
            right[layer] += sum((np.isin(best[:, token], list(of_token)) for token, of_token in partners.items()), 0)
            sureness[layer] += looks.max(2).sum(1)
    if tokens < LEAST_TOKENS or right.max() < LEAST_RIGHT * tokens:
        return None
    sureness[right < max(LEAST_RIGHT * tokens, right.max() - ALIKE * tokens)] = 0
    layer, place = map(int, np.unravel_index(sureness.argmax(), sureness.shape))
    return Aligner(layer=layer, heads=tuple(sorted(set(chosen[place]))), tokens=tokens, right=int(right[layer, place]))


def copied(sentence: Sentence) -> Iterator[tuple[int, frozenset[int]]]:
    """Every target token of a copied name or number, and the source tokens of the same."""
    sources, targets = _names(sentence.source), _names(sentence.target)
    for word in sources.keys() & targets.keys():
        partners = frozenset(_within(sources[word], sentence.source_spans))
        for token in _within(targets[word], sentence.target_spans):
            if partners:
                yield token, partners


def _names(text: str) -> Mapping[str, Span]:
    """Words with a digit or a capital that stand in it once. One letter alone is no name."""
    words = list(WORD.finditer(text))
    count = Counter(word.group() for word in words)
    return {
        word.group(): word.span()
        for word in words
        if count[word.group()] == 1
        and any(character.isdigit() or character.isupper() for character in word.group())
        and (len(word.group()) > 1 or word.group().isdigit())
    }


def _within(word: Span, tokens: Sequence[Span]) -> Iterator[int]:
    """The tokens that have some of the word and nothing else."""
    return (place for place, (begin, end) in enumerate(tokens) if word[0] <= begin < end <= word[1])
