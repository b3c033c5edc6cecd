"""What is said of a checkpoint that is refused."""

from pathlib import Path

import pytest

from models.checkpoint import CheckpointError, load_checkpoint


def refusal(folder: Path) -> str:
    """The message: one line, which names the folder."""
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(folder)
    message = str(error.value)
    assert str(folder) in message
    assert "\n" not in message
    return message
