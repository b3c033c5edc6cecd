"""The formats that bulk reads and writes, by name, and which files are of which."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from dragoman.bulk.rows import Columns, Format

CLASSES = {
    "text": "text:Text",
    "jsonl": "jsonl:JsonLines",
    "csv": "table:CommaSeparated",
    "tsv": "table:TabSeparated",
    "parquet": "parquet:Parquet",
    "dataset": "dataset:Dataset",
    "copied": "copied:Copied",
}
SUFFIXES = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
CHOICES = [name for name in CLASSES if name != "copied"]
"""Those that somebody may ask for."""
OF_ARROW = ("parquet", "dataset")
"""Those whose files Arrow opens, by names in UTF-8."""
OF_A_DATASET, OF_SEVERAL = ("state.json", "dataset_info.json"), "dataset_dict.json"
"""What the folder of a Hugging Face `Dataset` has, and that of a `DatasetDict` with the folders of its splits."""


def format_of(path: Path) -> str | None:
    """The name of the format that a file or a folder says it has. None: it says none that is known."""
    if path.is_dir():
        return "dataset" if all((path / name).exists() for name in OF_A_DATASET) else None
    return "copied" if path.name == OF_SEVERAL else SUFFIXES.get(path.suffix.lower())


def open_format(name: str, source: Path, columns: Columns) -> Format:
    """A source in a format of this name. What only some formats need is imported for those alone."""
    module, _, kind = CLASSES[name].partition(":")
    made = cast(Callable[[Path, Columns], Format], vars(import_module(f"{__name__}.{module}"))[kind])
    return made(source, columns)
