"""What becomes of the scores of a row, and which rows are processed alike."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from engine.processors.chain import Chain, chain
from engine.processors.processor import Seen
from engine.processors.sampling import Sampling
from engine.processors.targets import FedTokens
from engine.search.score import candidates
from engine.targets import TargetRules
from models.decoding import Decoding

SPARE = 8
"""Candidates more than a search needs: mostly more than the processors take away of a row's best."""

Noise = NDArray[np.float64]


class Key(NamedTuple):
    """What is the same of rows that are processed together."""

    chain: Chain
    of_logits: bool
    best: int
    sampling: Sampling | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kind:
    """The one of a key, as long as a request has it: to compare two takes no look at their processors."""

    chain: Chain
    of_logits: bool
    best: int
    sampling: Sampling | None

    @property
    def raises(self) -> bool:
        """A token may become one of the best that was none."""
        return any(processor.raises for processor in self.chain)

    @property
    def needs_logits(self) -> bool:
        """Log-probabilities do not say what becomes of a score."""
        return self.of_logits and any(processor.of_logits for processor in self.chain)

    @property
    def known(self) -> int:
        """How many of a row's best tokens are asked for. 0: the whole row is looked at anyway."""
        if self.raises:
            return 0
        if self.sampling is None:
            return self.best + SPARE
        return self.sampling.known and self.sampling.known + (SPARE if self.chain else 0)


_KINDS: WeakValueDictionary[Key, Kind] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Processed:
    """What becomes of the scores of a row."""

    chain: Chain
    of_logits: bool
    """They change logits, and what is told of a token is the model's log-probability: `generate` without beams."""
    source_ids: tuple[int, ...]
    rules: TargetRules
    best: int
    """Tokens of a row that its search looks at, or that one is drawn from; 0: all."""
    sampling: Sampling | None = None
    noise: Noise | None = None
    """Of every step, if a token is drawn."""
    kind: Kind = field(init=False, compare=False, repr=False)
    largest_id: int = field(init=False, compare=False, repr=False)
    """The largest token id that is named by processors, source or rules."""

    def __post_init__(self) -> None:
        key = Key(self.chain, self.of_logits, self.best, self.sampling)
        object.__setattr__(self, "kind", _KINDS.setdefault(key, Kind(*key)))
        named = (processor.largest_id for processor in self.chain)
        largest = max(*self.source_ids, *self.rules.barred_ids(0), *named, 0)
        object.__setattr__(self, "largest_id", largest)

    @classmethod
    def of(
        cls, decoding: Decoding, rules: TargetRules, source_ids: tuple[int, ...], sample: int = 0
    ) -> "Processed | None":
        """None: the search sees what the decoder has found.

        sample: which of those that are drawn of the source
        """
        processors, sampling = chain(decoding, rules), Sampling.of(decoding)
        if not processors and sampling is None:
            return None
        if sampling is not None:
            noise = np.random.Generator(np.random.Philox(decoding.seed).jumped(sample)).random(decoding.max_new_tokens)
            return cls(processors, True, source_ids, rules, sampling.wanted, sampling, noise)
        greedy = decoding.num_beams == 1
        best = decoding.rows + len(rules.barred_ids(0)) if greedy else candidates(decoding, rules)
        return cls(processors, greedy, source_ids, rules, best)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are processed alike."""

    kind: Kind
    rows: NDArray[np.intp]
    of: Sequence[Processed]
    """What becomes of each."""
    chosen: NDArray[np.intp]
    """How many tokens each has got [rows]."""

    @property
    def barred(self) -> Sequence[Collection[int]]:
        """What cannot be drawn of each. Nothing, where a search sees to that."""
        if self.kind.sampling is None:
            return [()] * len(self.of)
        return [one.rules.barred_ids(chosen) for one, chosen in zip(self.of, self.chosen.tolist(), strict=True)]

    def process(self, scores: NDArray[np.float32], seen: Seen) -> None:
        """Changes the scores of the rows in place [rows, vocabulary]."""
        for processor in self.kind.chain:
            processor(scores, seen)
        if any(barred := self.barred):
            scores[_pairs(barred)] = -np.inf

    def part(self, which: NDArray[np.intp]) -> "Group":
        """Some of the rows."""
        return Group(self.kind, self.rows[which], [self.of[one] for one in which.tolist()], self.chosen[which])


def alike(rows: Sequence[Processed | None], which: Iterable[int], fed: FedTokens) -> Iterator[Group]:
    """Those of some rows that are processed alike."""
    groups: dict[Kind, list[int]] = {}
    for row in which:
        if (one := rows[row]) is not None:
            groups.setdefault(one.kind, []).append(row)
    for kind, together in groups.items():
        of, numbers = [one for row in together if (one := rows[row]) is not None], np.array(together)
        before = np.array([len(one.rules.prefix_ids) for one in of])
        yield Group(kind, numbers, of, fed.lengths(numbers) - before)


def _pairs(barred: Sequence[Collection[int]]) -> tuple[list[int], list[int]]:
    """Rows, and a token that each cannot have."""
    pairs = [(row, token) for row, ids in enumerate(barred) for token in ids]
    return [row for row, _ in pairs], [token for _, token in pairs]
