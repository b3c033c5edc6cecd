"""The corpus card: what the corpus is made of."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from training.corpus.cleaning import PAIR_RULES, SENTENCE_RULES
from training.corpus.collection import HELD_OUT, REPEATED, Collection, Origin
from training.corpus.sources.all_sources import TextSource

Kept = Iterable[tuple[str, Origin]]

TEMPLATE = """\
# Corpus English - Portuguese

Made by `python -m training.corpus` from Debian's packages and their translations. Most Portuguese is Brazilian.
The same packages make the same bytes.

| file | lines | words | |
|---|---|---|---|
{files}

The origin of line n, its source and document, is line n of the file's `.origins`. Lines are in random order.
`held_out.txt` has the sentences of the documents that were left out.

## Sources

The licence is that of the text. Words are English ones; Portuguese for `mono.pt`.

| source | licence | pairs | words | `mono.en` | words | `mono.pt` | words |
|---|---|---|---|---|---|---|---|
{sources}

| source | packages |
|---|---|
{packages}

## Rules

Tags, entities, bullets and the marks of menu accelerators are removed. A paragraph is split into sentences where both
sides have as many. Then these are left out, each for the first reason that holds:

| of | reason | lines |
|---|---|---|
{rules}

Nothing is here of the documents that `tests/data/heldout.en-pt.tsv` draws on: the Wesnoth campaign "The Sceptre of
Fire", the pages of GNOME's help whose name has an md5 divisible by 6, the package descriptions whose md5 ends in 00
or 80. Nor is any line here that is or contains one of their sentences of {document_words} words or more, or one of the
{listed:,} sentences of `heldout.en-pt.tsv` and `flores-dev.en-pt.tsv`, of either side, whatever the case, spaces and
punctuation. `python -m training.corpus.check FOLDER` proves it.
"""


def card(
    collection: Collection, sources: Sequence[TextSource], versions: dict[str, str], listed: int, document_words: int
) -> str:
    """Markdown."""
    english_of_pairs = [(english, origin) for (english, _), origin in collection.pairs.values()]
    kept = [english_of_pairs, [*collection.english.values()], [*collection.portuguese.values()]]
    return TEMPLATE.format(
        files="\n".join(_files(collection)),
        sources="\n".join(_sources(sources, [_by_source(lines) for lines in kept])),
        packages="\n".join(_packages(sources, versions)),
        rules="\n".join(_rules(collection.left_out)),
        listed=listed,
        document_words=document_words,
    )


def _files(collection: Collection) -> list[str]:
    pairs = [pair for pair, _ in collection.pairs.values()]
    described = (
        ("pairs.en", [english for english, _ in pairs], "sentences, headings and messages"),
        ("pairs.pt", [portuguese for _, portuguese in pairs], "their translations"),
        ("mono.en", [text for text, _ in collection.english.values()], "sentences, those of the pairs among them"),
        ("mono.pt", [text for text, _ in collection.portuguese.values()], "sentences, those of the pairs among them"),
    )
    return [f"| `{name}` | {len(lines):,} | {_words(lines):,} | {text} |" for name, lines, text in described]


def _sources(sources: Sequence[TextSource], kinds: list[dict[str, list[str]]]) -> list[str]:
    rows = []
    for source in sources:
        counts = [f"{len(lines[source.name]):,} | {_words(lines[source.name]):,}" for lines in kinds]
        rows.append(f"| {source.name} | {source.licence} | {' | '.join(counts)} |")
    return rows


def _packages(sources: Sequence[TextSource], versions: dict[str, str]) -> list[str]:
    """Where a source lacks a package, the row says so."""
    rows = []
    for source in sources:
        names = [*source.packages, *(wheel.partition("==")[0] for wheel in source.wheels)] or [source.name]
        found = [f"{name} {versions[name]}" if name in versions else f"{name} (MISSING)" for name in names]
        rows.append(f"| {source.name} | {', '.join(found)} |")
    return rows


def _rules(left_out: Counter[tuple[str, str]]) -> list[str]:
    orders = {
        "pairs": [rule.reason for rule in PAIR_RULES],
        "English sentences": [rule.reason for rule in SENTENCE_RULES],
        "Portuguese sentences": [*(rule.reason for rule in SENTENCE_RULES)],
    }
    rows = []
    for kind, reasons in orders.items():
        last = [REPEATED, HELD_OUT, *(["English"] if kind.startswith("Portuguese") else [])]
        rows += [f"| {kind} | {reason} | {left_out[kind, reason]:,} |" for reason in [*reasons, *last]]
    return rows


def _by_source(lines: Kept) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for text, origin in lines:
        found[origin.source].append(text)
    return found


def _words(lines: Iterable[str]) -> int:
    return sum(len(line.split()) for line in lines)
