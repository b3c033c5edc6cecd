"""Files that stand for others: what a clone has where Git LFS is not installed, or was told to leave them out."""

from pathlib import Path

from models.checkpoint.contents import CheckpointError

BEGINNING = b"version https://git-lfs"


def check_fetched(*files: Path) -> None:
    """Raises CheckpointError where one stands for a file that Git LFS has not fetched. Others are passed over."""
    for file in files:
        if file.is_file() and _begins(file) == BEGINNING:
            raise CheckpointError(f"{file} stands for a file that Git LFS has not fetched: run `git lfs pull` there")


def _begins(file: Path) -> bytes:
    try:
        with file.open("rb") as content:
            return content.read(len(BEGINNING))
    except OSError:  # which its reader tells
        return b""
