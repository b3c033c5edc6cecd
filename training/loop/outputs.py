"""The folder of a run: what it writes, and where."""

import os
from dataclasses import dataclass
from pathlib import Path

from training.errors import TrainingError

PREFIX, SUFFIX = "step-", ".pt"
"""Of the names of checkpoints."""


@dataclass(frozen=True)
class Outputs:
    """Where a run writes."""

    folder: Path

    @property
    def vocabulary(self) -> Path:
        """The tokenizer's files."""
        return self.folder / "vocabulary"

    @property
    def checkpoints(self) -> Path:
        """What a run that was killed goes on from."""
        return self.folder / "checkpoints"

    @property
    def best(self) -> Path:
        """The weights with the best validation."""
        return self.folder / "best.pt"

    @property
    def tensorboard(self) -> Path:
        """The curves."""
        return self.folder / "tensorboard"

    @property
    def model(self) -> Path:
        """The finished model, a Hugging Face folder where there is such a model."""
        return self.folder / "model"

    def checkpoint(self, step: int) -> Path:
        """That of a step."""
        return self.checkpoints / f"{PREFIX}{step:08}{SUFFIX}"

    def all_checkpoints(self) -> list[Path]:
        """Oldest first."""
        # Not `glob`, whose open folder an interruption would leave behind.
        names = os.listdir(self.checkpoints) if self.checkpoints.exists() else []
        return sorted(self.checkpoints / name for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX))

    def check(self) -> None:
        """Raises TrainingError where the finished model would take the place of something that no run here wrote."""
        if self.model.exists() and not self.all_checkpoints():
            raise TrainingError(
                f"{self.model} is there, and {self.folder} has no checkpoint of the run that wrote it: choose another "
                "output folder, or move it away"
            )
