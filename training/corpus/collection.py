"""The lines of the corpus, and what was left out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from training.corpus.cleaning import PAIR_RULES, SENTENCE_RULES, clean, sentence_pairs, sentences
from training.corpus.held_out import Excluded, is_held_out, of_documents
from training.corpus.sources.passages import Passage
from training.data.files import write_lines

SEED = 1
"""Of the order of lines. What reads only a part of the corpus has then read of every source."""
Line = TypeVar("Line")
HELD_OUT, REPEATED = "held out: models are scored with it, or with its document", "repeated"
"""Reasons to leave a line out, beside those of the rules."""


class Origin(NamedTuple):
    """Where a line comes from."""

    source: str
    document: str


@dataclass
class Collection:
    """Pairs, and sentences of either language, each once whatever its case."""

    excluded: Excluded
    pairs: dict[tuple[str, str], tuple[tuple[str, str], Origin]] = field(default_factory=dict)
    english: dict[str, tuple[str, Origin]] = field(default_factory=dict)
    portuguese: dict[str, tuple[str, Origin]] = field(default_factory=dict)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(kind of line, reason): lines."""

    def add(self, source: str, passage: Passage) -> None:
        """Whatever is good in a passage."""
        origin = Origin(source, passage.document)
        english, portuguese = clean(passage.english or ""), clean(passage.portuguese or "")
        if english and portuguese:
            for pair in sentence_pairs(english, portuguese):
                self._add_pair(pair, origin)
        self._add_sentences("English sentences", self.english, english, origin)
        if portuguese != english:
            self._add_sentences("Portuguese sentences", self.portuguese, portuguese, origin)

    def finish(self) -> None:
        """Drops from the Portuguese what nobody had translated."""
        for key in self.portuguese.keys() & self.english.keys():
            del self.portuguese[key]
            self.left_out["Portuguese sentences", "English"] += 1

    def _add_pair(self, pair: tuple[str, str], origin: Origin) -> None:
        key = pair[0].casefold(), pair[1].casefold()
        reason = next((rule.reason for rule in PAIR_RULES if rule.applies(*pair)), None)
        if reason is None and key in self.pairs:
            reason = REPEATED
        if reason is None and any(side in self.excluded for side in pair):
            reason = HELD_OUT
        if reason is None:
            self.pairs[key] = pair, origin
        else:
            self.left_out["pairs", reason] += 1

    def _add_sentences(self, kind: str, kept: dict[str, tuple[str, Origin]], text: str, origin: Origin) -> None:
        for sentence in sentences(text) if text else ():
            reason = next((rule.reason for rule in SENTENCE_RULES if rule.applies(sentence)), None)
            if reason is None and sentence.casefold() in kept:
                reason = REPEATED
            if reason is None and sentence in self.excluded:
                reason = HELD_OUT
            if reason is None:
                kept[sentence.casefold()] = sentence, origin
            else:
                self.left_out[kind, reason] += 1


def collect(passages: Sequence[tuple[str, Passage]], listed: Iterable[str]) -> tuple[Collection, list[str]]:
    """The corpus, and the sentences of the held-out documents.

    passages: (source, passage), each source as a whole.
    listed: sentences to leave out, beside those of the documents.
    """
    held_out = [
        text for source, passage in passages if is_held_out(source, passage.document) for text in _texts(passage)
    ]
    held_out = sorted(set(of_documents(held_out)))
    collection = Collection(Excluded([*listed, *held_out]))
    for source, passage in passages:
        if not is_held_out(source, passage.document):
            collection.add(source, passage)
    collection.finish()
    return collection, held_out


def write(collection: Collection, held_out: list[str], folder: Path) -> None:
    """pairs.en, pairs.pt, mono.en and mono.pt; the origin of their lines; and the sentences of held-out documents."""
    pairs = _shuffled(collection.pairs.values())
    write_lines(folder / "pairs.en", (english for (english, _), _ in pairs))
    write_lines(folder / "pairs.pt", (portuguese for (_, portuguese), _ in pairs))
    write_lines(folder / "pairs.origins", ("\t".join(origin) for _, origin in pairs))
    for name, lines in (("mono.en", collection.english), ("mono.pt", collection.portuguese)):
        kept = _shuffled(lines.values())
        write_lines(folder / name, (sentence for sentence, _ in kept))
        write_lines(folder / f"{name}.origins", ("\t".join(origin) for _, origin in kept))
    write_lines(folder / "held_out.txt", held_out)


def _texts(passage: Passage) -> Iterator[str]:
    for side in (passage.english, passage.portuguese):
        yield from sentences(clean(side or ""))


def _shuffled(lines: Iterable[Line]) -> list[Line]:
    found = list(lines)
    Random(SEED).shuffle(found)
    return found
