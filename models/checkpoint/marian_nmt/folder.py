"""Which file is what in a folder of Marian NMT, by the names that Firefox's models have."""

import re
from dataclasses import dataclass
from pathlib import Path

from models.checkpoint.contents import CheckpointError

SHORTLISTS = "lex*.bin"
PYTORCH = "pytorch_model*.bin"
LANGUAGES = re.compile(r"model\.([a-z]{2})([a-z]{2})\.intgemm.*")
"""Firefox names a model by both languages: model.enpt.intgemm.alphas.bin."""
PAIRS = (("srcvocab.", "trgvocab."), ("source.", "target."))
"""How the vocabularies of the two sides begin, where each has its own."""


@dataclass(frozen=True)
class MarianFolder:
    """The files of a model."""

    model: Path
    vocabularies: tuple[Path, Path]
    """Of the source and of the target; one file, where they share it."""
    shortlist: Path | None
    languages: tuple[str, ...]
    """Of the source and of the target; none, where the model's name does not say them."""


def read_folder(folder: Path) -> MarianFolder:
    """Tells the files of a folder apart. Raises CheckpointError where one is missing, or one too many."""
    shortlists = sorted(folder.glob(SHORTLISTS))
    models = {*folder.glob("*.npz"), *folder.glob("*.bin")} - {*shortlists, *folder.glob(PYTORCH)}
    model = _only(folder, sorted(models), "config.json (Hugging Face) and no model (*.bin or *.npz: Marian, Firefox)")
    languages = LANGUAGES.fullmatch(model.name)
    return MarianFolder(
        model=model,
        vocabularies=_vocabularies(folder),
        shortlist=_only(folder, shortlists, f"shortlist ({SHORTLISTS})") if shortlists else None,
        languages=languages.groups() if languages else (),
    )


def _vocabularies(folder: Path) -> tuple[Path, Path]:
    found = sorted(folder.glob("*.spm"))
    for beginnings in PAIRS:
        pair = [file for beginning in beginnings for file in found if file.name.startswith(beginning)]
        if len(pair) == len(found) == 2:
            return pair[0], pair[1]
    file = _only(folder, found, "vocabulary (*.spm; or srcvocab.*.spm and trgvocab.*.spm)")
    return file, file


def _only(folder: Path, found: list[Path], what: str) -> Path:
    if not found:
        packed = "; unpack the .gz files first" if any(folder.glob("*.gz")) else ""
        raise CheckpointError(f"{folder} has no {what}{packed}")
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise CheckpointError(f"{folder} has {len(found)} files where one is expected, {names}: leave only one there")
    return found[0]
