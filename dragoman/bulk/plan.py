"""Which files become which: what a run is to do, and whether it can."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.bulk.errors import WrongUsage
from dragoman.bulk.formats import CHOICES, OF_ARROW, OF_SEVERAL, SUFFIXES, format_of, open_format
from dragoman.bulk.rows import Columns, Format

STREAM = Path("-")
"""Standard input or output, to other programs. A file of this name may be asked for with its whole path."""
PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".tgz", ".tar")
"""How names of packed files end."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file, or the folder of a dataset, and what it becomes."""

    source: Path
    target: Path
    format: str

    def open(self, columns: Columns) -> Format:
        """The source in its format."""
        return open_format(self.format, self.source, columns)

    @property
    def size_bytes(self) -> int:
        """Of the source."""
        return sum(file.stat().st_size for file in self.files())

    def files(self) -> Iterator[Path]:
        """Of the source, in an order of their own."""
        yield from [self.source] if self.source.is_file() else sorted(self.source.iterdir())


def planned(source: Path, target: Path, format: str | None) -> list[Item]:
    """What is to be done, in the order in which it is. Raises WrongUsage.

    format: that of every file. None: what each says itself
    """
    if STREAM in (source, target):
        raise WrongUsage("- is no file: files alone can be gone on with; lines of a pipe are for dragoman translate")
    if not source.exists():
        raise WrongUsage(f"{source} is not there")
    if not target.name or (target.is_dir() and not source.is_dir()):
        raise WrongUsage(f"{target} is a folder that exists already: say what becomes of {source} there")
    inner, outer = target.resolve(), source.resolve()
    if inner == outer or inner.is_relative_to(outer):
        raise WrongUsage(f"{target} is inside of {source}, and would be read too: write to another place")
    if not target.parent.is_dir():
        raise WrongUsage(f"{target.parent} is no folder: make it first, or write to another place")
    several = (source / OF_SEVERAL).exists()
    if not source.is_dir() or format_of(source) == "dataset" or (format == "dataset" and not several):
        found = [_alone(source, target, format)]
    else:
        found = [
            Item(path, target / path.relative_to(source), _format(path, None if path.name == OF_SEVERAL else format))
            for path in _inside(source)
        ]
    if not found:
        raise WrongUsage(f"{source} has no files")
    for item in found:
        _check(item, inner)
    return found


def _alone(source: Path, target: Path, format: str | None) -> Item:
    """What is no folder of others. Raises WrongUsage."""
    kind = _format(source, format)
    said = SUFFIXES.get(target.suffix.lower(), kind)
    if format is None and said != kind:
        way = f"call it otherwise, or say --format {kind}"
        raise WrongUsage(f"{target} has the name of {said}, and {source} is {kind} and stays so: {way}")
    return Item(source, target, kind)


def check_memory(file: Path, source: Path, target: Path, items: Sequence[Item]) -> None:
    """A memory is no text and no translation, which it would be written over. Raises WrongUsage.

    Nor is it one of the files in the source that the same run would find when it goes on.
    """
    memory, folder = file.resolve(), source.resolve()
    inside = folder.is_dir() and memory.is_relative_to(folder)
    if inside and not any(part.startswith(".") for part in memory.relative_to(folder).parts):
        raise WrongUsage(f"{file} is in {source}, whose files are translated: give the memory another place")
    if memory.is_relative_to(target.resolve()) or memory in (item.source.resolve() for item in items):
        raise WrongUsage(f"{file} is {target}, in it, or a text to translate: give the memory another file")


def _check(item: Item, target: Path) -> None:
    """target: of the run. Raises WrongUsage."""
    if item.source.resolve().is_relative_to(target):
        raise WrongUsage(f"{item.source} is inside of {target}: write to another place")
    for path in (str(item.source), str(item.target)) if item.format in OF_ARROW else ():
        if any("\ud800" <= character <= "\udfff" for character in path):
            raise WrongUsage(f"{path!r} is no UTF-8, and Arrow opens no file of such a name: rename it")


def _inside(folder: Path) -> Iterator[Path]:
    """Files, and folders of datasets, in alphabetical order, also those behind links. Hidden ones are left out.

    Raises WrongUsage, or OSError for a folder that cannot be read.
    """
    for parent, folders, files in os.walk(folder, onerror=_fail, followlinks=True):
        here = Path(parent)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if here.resolve().is_relative_to((here / name).resolve()):
                raise WrongUsage(f"{here / name} is a link to a folder that it is in, without end: delete it")
        datasets = [name for name in folders if format_of(here / name) == "dataset"]
        folders[:] = [name for name in folders if name not in datasets]
        yield from (here / name for name in sorted([*datasets, *files]) if not name.startswith("."))


def _fail(error: OSError) -> None:
    raise error


def _format(path: Path, format: str | None) -> str:
    """Raises WrongUsage."""
    if not path.is_file() and not path.is_dir():
        raise WrongUsage(f"{path} is no file and no folder, but a pipe, a device, or a link to nothing")
    found = format or format_of(path)
    if found is None:
        known = ", ".join([*SUFFIXES, "folders that Dataset.save_to_disk wrote"])
        way = f"say which by --format {{{','.join(CHOICES)}}}"
        if path.suffix.lower() in PACKED:
            way = "it is packed, so unpack it first"
        raise WrongUsage(f"{path} is of no known format ({known}): {way}")
    return found
