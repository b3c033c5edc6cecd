"""A teacher writes the target side of a corpus; what was begun is gone on with."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from models.package.folder import Package
from training import command
from training.config import MOST_BEAMS
from training.data.files import lock, write_lines
from training.data.text import read_lines
from training.decoding import TargetLimits, Translating, open_package
from training.errors import TrainingError
from training.loop.progress import Display, Rate

SHOWN_EVERY = 50
"""Sentences between two looks at the clock."""


def run(package: Path, source: Path, out: Path, num_beams: int) -> int:
    """Returns 0, 2 where the input is bad or the disk full, or 130 after Ctrl-C."""

    def work(console: Console) -> None:
        if not 1 <= num_beams <= MOST_BEAMS:
            raise TrainingError(f"--num-beams is {num_beams}; it is 1 to {MOST_BEAMS}")
        teacher = Package.open(package)
        languages(teacher)
        with open_package(teacher, TargetLimits(num_beams)) as translating:
            distill(translating, teacher, source, out, num_beams, console)

    return command.run(work)


def distill(
    translating: Translating, teacher: Package, source: Path, out: Path, num_beams: int, console: Console
) -> None:
    """Writes both sides of the corpus, without the sentences whose translation did not end by itself.

    What is done is kept in a file beside them until then, so that an interrupted run goes on. Raises TrainingError.
    """
    if not out.name:
        raise TrainingError(f"{out} is a folder; name the two files in it, without the languages")
    tags = languages(teacher)
    files = [out.with_name(f"{out.name}.{tag}") for tag in tags]
    if source.resolve() in (file.resolve() for file in files):
        raise TrainingError(f"{source} would be written over, without what does not end; choose another --out")
    lines = read_lines(source)
    sources = [translating.tokenizer.encode(line, tags[1], tags[0]) for line in lines]
    check_lengths(source, lines, sources, translating.max_tokens)
    begun = files[1].with_name(f"{files[1].name}.begun")
    begun.parent.mkdir(parents=True, exist_ok=True)
    # Of what was read, and not of the file, which may be a pipe.
    read = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    heading = json.dumps({"source": read, "teacher": teacher.sha256, "num_beams": num_beams})
    with begun.open("a", encoding="utf-8") as stream:
        lock(stream.fileno(), f"another run writes to {begun}: wait for it, or choose another --out")
        done = translations_in(begun, heading)
        if done > len(lines):  # as two runs at a time left it before there was a lock
            raise TrainingError(f"{begun} has {done:,} translations of {len(lines):,} sentences; delete it")
        if begun.stat().st_size == 0:
            print(heading, file=stream)
        with Display(console, done, len(lines), "sentences") as display:
            rate = Rate()
            for number, target in enumerate(translating.translate(sources[done:]), done + 1):
                print(" ".join(target.text.split()) if target.complete else "", file=stream)
                rate.add(target.tokens)
                if number % SHOWN_EVERY == 0 or number == len(lines):
                    stream.flush()
                    display.update(number, f"{rate.read():,.0f} tokens/s")
        kept = write_pairs(lines, begun.read_text(encoding="utf-8").split("\n")[1:-1], files)
        begun.unlink()
    if not kept:
        raise TrainingError(f"none of {len(lines):,} translations ended by itself: there is nothing to learn from them")
    console.print(
        f"{files[0]} and {files[1]}: {kept:,} pairs; {len(lines) - kept:,} did not end and were left out",
        soft_wrap=True,
    )


def check_lengths(source: Path, lines: Sequence[str], sources: Sequence[Sequence[int]], limit: int) -> None:
    """Every line is a sentence that the teacher takes. Raises TrainingError."""
    for number, (line, ids) in enumerate(zip(lines, sources, strict=True), 1):
        if not line.strip():
            raise TrainingError(f"{source}, line {number} is empty; remove it")
        if len(ids) > limit:
            raise TrainingError(f"{source}, line {number} has {len(ids)} tokens; the teacher takes {limit}. Shorten it")


def languages(teacher: Package) -> tuple[str, str]:
    """Source and target language of a package. Raises TrainingError where they are not two, each by itself."""
    name, sides = teacher.manifest.name, (teacher.manifest.source_languages, teacher.manifest.target_languages)
    if not sides[1]:
        raise TrainingError(f"{name} is an encoder alone; give a teacher that translates")
    for side, tags in zip(("source", "target"), sides, strict=True):
        if len(tags) != 1:
            raise TrainingError(
                f"{name} has {len(tags)} {side} languages, and the text is in one: export it again with one "
                f"--{side}-language"
            )
    [source], [target] = sides
    if source == target:
        raise TrainingError(
            f"{name} has {source} on both sides, after which both files would be named: export it again with another "
            f"--target-language, such as {source}-x-teacher"
        )
    return source, target


def translations_in(begun: Path, heading: str) -> int:
    """How many lines a run that was interrupted has finished. What comes after the last whole line is cut off.

    Raises TrainingError.
    """
    content = begun.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole and whole.partition(b"\n")[0] != heading.encode():
        raise TrainingError(
            f"{begun} was begun with another source, teacher or search; delete it, or choose another --out"
        )
    os.truncate(begun, len(whole))
    return max(0, whole.count(b"\n") - 1)


def write_pairs(lines: Sequence[str], translations: Sequence[str], files: Sequence[Path]) -> int:
    """Writes the pairs that have a translation, if there are any. Returns their number."""
    pairs = [pair for pair in zip(lines, translations, strict=True) if pair[1]]
    for number, file in enumerate(files if pairs else ()):
        write_lines(file, (pair[number] for pair in pairs))
    return len(pairs)
