"""What every source of checkpoints gives."""

from dataclasses import dataclass
from pathlib import Path


class SourceError(Exception):
    """A checkpoint that cannot be had. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A checkpoint on this machine, with what its folder does not say."""

    folder: Path
    name: str
    pinned: str | None = None
    """The name that stands for exactly these files: hf:OWNER/NAME@COMMIT or firefox:PAIR@HASH. None: only a folder."""
    source_languages: tuple[str, ...] = ()
    """BCP-47 tags, where the source says them."""
    target_languages: tuple[str, ...] = ()
