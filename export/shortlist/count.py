"""Makes a shortlist for a model, of a text."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from engine.devices.machine import usable_cores
from export.inputs import InputError
from export.shortlist.align import Aligner, Pair, TokenIds, align, aligners, batches
from export.shortlist.table import Counts, ListSize, coverage
from export.shortlist.text import Text
from export.tell import Tell
from export.translate import translate
from models.checkpoint import Checkpoint
from models.package.declared.precision import AttentionKind
from models.package.derived import vocabulary
from models.package.shortlist import Shortlist
from models.tokenizers.sentencepiece_pair import SentencePiecePair
from models.tokenizers.target_side import target_side
from models.transformer import Transformer

MOST_TOKENS = 128
"""Of a source and of its target: of longer ones, attention takes more time than their few words are worth."""
MOST_UNKNOWN = 0.05
"""Share of the tokens of a side that the vocabulary may not know: in another script, it knows hardly any."""
HELD_BACK, MOST_HELD_BACK = 0.1, 1000
"""Share of the pairs, and how many at most, that the table is measured with before they are counted too."""
COMPARED, JUDGED_BY = 2000, 300
"""Pairs that all aligners count to be compared, and those of the held back that they are judged by."""
JUDGED_BEST = 5
"""Length of the lists that aligners are judged by."""
EVERY_S = 10.0
"""Seconds between two reports."""


def count_shortlist(
    checkpoint: Checkpoint, folder: Path, text: Text, size: ListSize, attention: AttentionKind, tell: Tell
) -> tuple[Shortlist, str]:
    """Counts the text's alignments by the model in `folder`. Raises InputError where it is of no use.

    Returns a sentence with what was counted, and how good it is.
    """
    if checkpoint.transformer.config.shared_layers:
        raise InputError("a text is aligned by one of the layers; this model has the same one at every depth")
    pairs = [pair for pair in encode(checkpoint, folder, text, attention, tell) if max(map(len, pair)) <= MOST_TOKENS]
    if len(pairs) < 2:
        raise InputError(f"{len(pairs)} of {len(text.sources)} pairs have at most {MOST_TOKENS} tokens on each side")
    held_back, counted = split(pairs)
    counts, rate = Counts(vocabulary(checkpoint.config)), Rate("pairs aligned", len(pairs), tell)
    with _all_cores():
        aligner = choose_aligner(checkpoint.transformer, counted[:COMPARED], held_back[:JUDGED_BY], size.first)
        _count(counts, checkpoint.transformer, counted, aligner, rate)
        found = coverage(counts.shortlist(size), held_back)
        _count(counts, checkpoint.transformer, held_back, aligner, rate)
    return counts.shortlist(size), (
        f"{len(pairs):,} pairs aligned by {aligner}, {len(text.sources) - len(pairs):,} left out as too long; before "
        f"they were counted, the lists allowed {found.tokens:.2%} of the target tokens of {len(held_back):,} pairs, "
        f"all of them in {found.sentences:.1%}, of {found.allowed:,.0f} tokens a source (median)"
    )


def encode(checkpoint: Checkpoint, folder: Path, text: Text, attention: AttentionKind, tell: Tell) -> list[Pair]:
    """Token ids of both sides. Raises InputError where the vocabulary does not know them."""
    language = checkpoint.target_languages[0]
    spec, end = checkpoint.sentencepiece, checkpoint.config.end_id
    source_side = SentencePiecePair.load(folder, spec)
    sources = [source_side.encode(line, language) for line in text.sources]
    _refuse_unknown("source", sources, spec.unknown_id)
    if text.targets is None:
        fit = [source for source in sources if len(source) <= MOST_TOKENS]
        rate = Rate("lines translated", len(fit), tell)
        pairs: list[Pair] = []
        for source, target in zip(fit, translate(checkpoint, attention, fit), strict=True):
            pairs.append((source, target))
            rate.add(1)
        return pairs
    encoder = target_side(folder, spec)
    targets = [[*encoder.encode(line)[:-1], end] for line in text.targets]
    _refuse_unknown("target", targets, spec.unknown_id)
    return list(zip(sources, targets, strict=True))


def split(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Those that are held back, from all over the text, and the others."""
    step = max(round(1 / HELD_BACK), -(-len(pairs) // MOST_HELD_BACK))
    return list(pairs[::step]), [pair for index, pair in enumerate(pairs) if index % step]


def choose_aligner(model: Transformer, pairs: Sequence[Pair], held_back: Sequence[Pair], first: int) -> Aligner:
    """The one whose short lists allow most of what was held back: long ones forgive an aligner its errors."""
    size = ListSize(first, JUDGED_BEST)
    all_counts = {aligner: Counts(vocabulary(model.config)) for aligner in aligners(model)}
    for aligned in align(model, pairs, list(all_counts)):
        for counts, found in zip(all_counts.values(), aligned, strict=True):
            counts.add(found)
    shares = {aligner: coverage(counts.shortlist(size), held_back).tokens for aligner, counts in all_counts.items()}
    return max(shares, key=shares.__getitem__)


class Rate:
    """Says now and then how far something is, and how fast."""

    def __init__(self, what: str, total: int, tell: Tell) -> None:
        self._what, self._total, self._tell = what, total, tell
        self._started = self._told = time.perf_counter()
        self._done = 0

    def add(self, done: int) -> None:
        """So many more."""
        self._done += done
        now = time.perf_counter()
        if now - self._told > EVERY_S or self._done == self._total:
            self._told = now
            rate = self._done / (now - self._started)
            self._tell(f"{self._done:,} of {self._total:,} {self._what}, {rate:,.0f} a second")


def _count(counts: Counts, model: Transformer, pairs: Sequence[Pair], aligner: Aligner, rate: Rate) -> None:
    for batch, [aligned] in zip(batches(pairs), align(model, pairs, [aligner]), strict=True):
        counts.add(aligned)
        rate.add(len(batch))


def _refuse_unknown(side: str, sentences: Sequence[TokenIds], unknown_id: int) -> None:
    unknown = sum(list(sentence).count(unknown_id) for sentence in sentences)
    tokens = sum(map(len, sentences))
    if unknown > MOST_UNKNOWN * tokens:
        raise InputError(
            f"the vocabulary does not know {unknown} of the {tokens} {side} tokens of the shortlist's text; at most "
            f"{MOST_UNKNOWN:.0%} is accepted. Is it the {side} language?"
        )


@contextmanager
def _all_cores() -> Iterator[None]:
    """Batches are large, unlike those that are compared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(threads)
