"""Trained models as others publish them. A family is a table of renames and a mapping of its configuration."""

from collections.abc import Callable
from pathlib import Path

from models.checkpoint import bart_like, gpt2, marian, marian_nmt, t5_like
from models.checkpoint.contents import Checkpoint, CheckpointError
from models.checkpoint.described import reader as described
from models.checkpoint.encoders import MODEL_TYPES as ENCODERS
from models.checkpoint.files.foreign import check_quantization, say_what_it_is, why_refused
from models.checkpoint.files.reading import read_json

__all__ = ["Checkpoint", "CheckpointError", "find_loader", "load_checkpoint"]

FAMILIES: dict[str, Callable[[Path], Checkpoint]] = {"marian": marian.load, "gpt2": gpt2.load}
FAMILIES |= dict.fromkeys(bart_like.FAMILIES, bart_like.load)
FAMILIES |= dict.fromkeys(t5_like.FAMILIES, t5_like.load)
"""By the `model_type` of a Hugging Face config.json."""


def load_checkpoint(folder: Path) -> Checkpoint:
    """Reads a checkpoint folder of any family. Raises CheckpointError."""
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is not a folder; expected a checkpoint folder, with a config.json or Marian's own"
        )
    if (folder / described.DESCRIPTION).exists():
        return described.load(folder)
    if (folder / "config.json").exists():
        return find_loader(folder)(folder)
    is_package = (folder / "manifest.json").exists() and (folder / "encoder.onnx").exists()
    if (is_package or not any(folder.glob("*.spm"))) and (said := say_what_it_is(folder)):
        raise CheckpointError(said)
    return marian_nmt.load(folder)


def find_loader(folder: Path) -> Callable[[Path], Checkpoint]:
    """What loads a folder with a config.json. Raises CheckpointError where nothing does."""
    file = folder / "config.json"
    content = read_json(file)
    family = content.get("model_type")
    if family in ENCODERS:
        raise CheckpointError(f"{file}: model_type is {family!r}, an encoder alone, which does not translate")
    if not isinstance(family, str) or family not in FAMILIES:
        reason = why_refused(content)
        raise CheckpointError(
            f"{file}: model_type is {family!r}{f': {reason}' if reason else ''}; supported: "
            f"{', '.join(sorted(FAMILIES))}; encoders alone: {', '.join(sorted(ENCODERS))}"
        )
    check_quantization(folder)
    return FAMILIES[family]
