"""Where checkpoints come from: a folder, the Hugging Face Hub, Mozilla's model registry."""

import re
from pathlib import Path
from typing import Literal

from export.sources.fetched import Fetched, SourceError
from export.tell import Tell

__all__ = ["Fetched", "SourceError", "fetch", "source_of"]

HUB_NAME = re.compile(r"(?:(?:https?://)?huggingface\.co/)?([\w.-]+/[\w.-]+)")
PAIR = re.compile(r"[a-z]{2,3}-[a-z]{2,3}")

Source = Literal["folder", "hf", "firefox"]


def source_of(checkpoint: str) -> Source:
    """Where what the command line calls a checkpoint comes from. What has no prefix of ours is a folder."""
    match checkpoint.partition(":"):
        case ("hf" | "firefox") as source, ":", _:
            return source
    return "folder"


def fetch(checkpoint: str, registry: str, tell: Tell) -> Fetched:
    """Gets a checkpoint from its source. Raises SourceError, or OSError where it cannot be written.

    registry: URL of Mozilla's list of models, or of a copy
    """
    name = checkpoint.partition(":")[2]
    match source_of(checkpoint):
        # Imported when they are needed: a folder needs neither.
        case "hf":
            from export.sources import hub

            return hub.fetch(name, tell)
        case "firefox":
            from export.sources import firefox

            return firefox.fetch(name, registry, tell)
    folder = Path(checkpoint)
    if not checkpoint:  # as a path it would be the current folder
        raise SourceError(f"the checkpoint is empty{_meant(checkpoint)}")
    if not folder.is_dir():
        raise SourceError(f"{checkpoint} is not a folder{_meant(checkpoint)}")
    for file in folder.iterdir():
        if file.exists() and not (file.is_file() or file.is_dir()):  # a pipe would be waited for
            raise SourceError(f"{file} is neither a file nor a folder; take it out of the checkpoint")
    return Fetched(folder, folder.resolve().name)


def _meant(checkpoint: str) -> str:
    if name := HUB_NAME.fullmatch(checkpoint):
        return f"; a model of the Hugging Face Hub is written hf:{name[1]}"
    if PAIR.fullmatch(checkpoint):
        return f"; a model of Firefox is written firefox:{checkpoint}"
    return "; expected a checkpoint folder, hf:OWNER/NAME or firefox:PAIR"
