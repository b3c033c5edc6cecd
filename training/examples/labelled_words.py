"""Text for an encoder that anyone can make: counted things, dates and times in English, and what they are.

python -m training.examples.labelled_words FOLDER writes train and valid of documents (.txt: a count, a date, a time,
and again), kinds (.tsv: what each sentence is of) and words (.conll: which words are numbers, and which things).
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from training.examples.folder import into_folder
from training.examples.number_words import NOUNS, ONES, PLURALS, TENS, counted, dated, timed

SENTENCES, HELD_OUT, SEED = 20_000, 500, 1
IN_A_DOCUMENT = 6
KINDS = {"count": counted, "date": dated, "time": timed}
NUMBERS = {*ONES, *TENS, "hundred", "thousand"}
THINGS = {*NOUNS, *(PLURALS.get(noun, f"{noun}s") for noun in NOUNS)}

Labelled = tuple[str, str]
"""What a sentence is of, and the sentence."""


def make_sentences(count: int, seed: int) -> list[Labelled]:
    """Different ones, in random order."""
    generator = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        kind, make = generator.choice(list(KINDS.items()))
        found.setdefault(make(generator)[0], kind)
    return [(kind, sentence) for sentence, kind in found.items()]


def words_of(sentence: str) -> list[str]:
    """Without the full stop; "twenty-one" is two, and a comma is one."""
    return sentence.removesuffix(".").replace("-", " ").replace(",", " ,").split()


def tagged(sentence: str) -> list[str]:
    """A line for each word, and an empty one."""
    words = words_of(sentence)
    numbers = [word.lower() in NUMBERS for word in words]
    for place in range(1, len(words) - 1):  # two hundred and one
        numbers[place] |= words[place] == "and" and numbers[place - 1] and numbers[place + 1]
    lines = []
    for word, number, before in zip(words, numbers, [False, *numbers], strict=False):
        tag = f"{'I' if before else 'B'}-NUMBER" if number else "B-THING" if word in THINGS else "O"
        lines.append(f"{word}\t{tag}")
    return [*lines, ""]


def documents(sentences: Sequence[Labelled]) -> Iterator[str]:
    """Lines: one sentence of each kind after another, again and again, and an empty line behind each few."""
    of_kinds = [[sentence for kind, sentence in sentences if kind == one] for one in KINDS]
    lines = [sentence for turn in zip(*of_kinds, strict=False) for sentence in turn]
    for begin in range(0, len(lines), IN_A_DOCUMENT):
        yield from (*lines[begin : begin + IN_A_DOCUMENT], "")


def write(folder: Path, sentences: Sequence[Labelled], held_out: int) -> None:
    """Writes all files; the first `held_out` sentences are for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("valid", sentences[:held_out]), ("train", sentences[held_out:])):
        files = {
            f"{name}.txt": documents(part),
            f"{name}.tsv": (f"{kind}\t{sentence}" for kind, sentence in part),
            f"{name}.conll": (line for _, sentence in part for line in tagged(sentence)),
        }
        for file, lines in files.items():
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    into_folder("labelled_words", __doc__, lambda folder: write(folder, make_sentences(SENTENCES, SEED), HELD_OUT))
