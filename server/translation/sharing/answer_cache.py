"""Answers that are kept for those who ask the same again."""

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from sys import getsizeof

from engine.links import Link
from engine.request import FinishReason, Hypothesis
from engine.targets import TargetRules
from models.decoding import Decoding
from server.telemetry.metrics.cache import AnswerCacheMetrics

ENTRY_BYTES = 576
"""Of an answer, besides its tokens: its place in the dictionary, its question, and objects that stand for numbers."""
HYPOTHESIS_BYTES = 200
"""The same of each of its hypotheses."""
WORD_BYTES = 40
"""Of a token that an option names."""


@dataclass(frozen=True, slots=True)
class Question:
    """All that an answer depends on. Whoever shares the batch is not among it, which is why answers can be kept."""

    package_sha256: str
    decoding: Decoding
    rules: TargetRules
    source_ids: bytes
    """As `packed` gives them."""


def packed(token_ids: tuple[int, ...]) -> bytes:
    """Token ids in four bytes each: as Python's integers they take forty."""
    return array("i", token_ids).tobytes()


@dataclass(frozen=True, slots=True)
class KeptHypothesis:
    """A hypothesis in a tenth of its size."""

    token_ids: bytes
    score: float
    log_prob: float
    finish_reason: FinishReason
    log_probs: bytes
    """Eight of each token that has one."""
    places: bytes
    """Of its links: those in the source, and then those in the target."""
    weights: bytes

    def unpacked(self) -> Hypothesis:
        """As it was."""
        log_probs, places = tuple(array("d", self.log_probs)), array("i", self.places)
        half = len(places) // 2
        links = tuple(map(Link, places[:half], places[half:], array("f", self.weights)))
        ids = tuple(array("i", self.token_ids))
        return Hypothesis(ids, self.score, self.finish_reason, log_probs, links, log_prob=self.log_prob)

    @property
    def size_bytes(self) -> int:
        """That its tokens and links take."""
        return getsizeof(self.token_ids) + len(self.log_probs) + len(self.places) + len(self.weights)


def kept_hypothesis(hypothesis: Hypothesis) -> KeptHypothesis:
    """See `KeptHypothesis.unpacked`."""
    log_probs = array("d", hypothesis.log_probs).tobytes()
    sources, targets, weights = zip(*hypothesis.links, strict=True) if hypothesis.links else ((), (), ())
    return KeptHypothesis(
        packed(hypothesis.token_ids),
        hypothesis.score,
        hypothesis.log_prob,
        hypothesis.finish_reason,
        log_probs,
        packed((*sources, *targets)),
        array("f", weights).tobytes(),
    )


class AnswerCache:
    """The answers that were asked for last, as many as fit. Used on the event loop only."""

    def __init__(self, most_bytes: int, metrics: AnswerCacheMetrics) -> None:
        """Has room for so many bytes; 0 keeps nothing."""
        self._most_bytes, self._metrics = most_bytes, metrics
        self._kept: OrderedDict[Question, tuple[KeptHypothesis, ...]] = OrderedDict()
        """The one that was asked for last is the last."""
        self._bytes = 0
        metrics.capacity(most_bytes)

    def get(self, question: Question) -> tuple[Hypothesis, ...] | None:
        """The hypotheses that answered it, best first, if they are kept."""
        if not self._most_bytes:
            return None
        kept = self._kept.get(question)
        if kept is None:
            self._metrics.missed()
            return None
        self._metrics.hit()
        self._kept.move_to_end(question)
        return tuple(hypothesis.unpacked() for hypothesis in kept)

    def put(self, question: Question, hypotheses: tuple[Hypothesis, ...]) -> None:
        """Keeps an answer. Those that nobody has asked for the longest make room."""
        kept = tuple(map(kept_hypothesis, hypotheses))
        if question in self._kept or size_of(question, kept) > self._most_bytes:
            return
        self._kept[question] = kept
        self._bytes += size_of(question, kept)
        while self._bytes > self._most_bytes:
            self._bytes -= size_of(*self._kept.popitem(last=False))
            self._metrics.evicted()
        self._metrics.holds(self._bytes)

    def forget(self, package_sha256: str) -> None:
        """Nobody asks this package any more. Its questions hold what they were read with, its tokenizer included."""
        for question in [one for one in self._kept if one.package_sha256 == package_sha256]:
            self._bytes -= size_of(question, self._kept.pop(question))
        self._metrics.holds(self._bytes)


def size_of(question: Question, kept: tuple[KeptHypothesis, ...]) -> int:
    """Bytes that an answer takes while it is kept."""
    tokens = getsizeof(question.source_ids) + sum(one.size_bytes for one in kept)
    words = WORD_BYTES * question.decoding.words
    return ENTRY_BYTES + HYPOTHESIS_BYTES * len(kept) + tokens + words
