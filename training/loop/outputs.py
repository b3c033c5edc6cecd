"""The folder of a run: what it writes, and where."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training.data.files import lock
from training.errors import TrainingError
from training.loop.processes import Processes

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

    @contextmanager
    def claimed(self, processes: Processes) -> Iterator[None]:
        """While it lasts no other run writes here.

        Raises TrainingError where one does, or where `model` is no run's.
        """
        if not processes.first:  # which claims it for all
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            lock(descriptor, f"another run writes to {self.folder}: wait for it, or choose another output folder")
            self._check_model()
            yield
        finally:
            os.close(descriptor)

    def _check_model(self) -> None:
        """The finished model must not take the place of something that no run here wrote."""
        if self.model.exists() and not self.all_checkpoints():
            raise TrainingError(
                f"{self.model} is there, and {self.folder} has no checkpoint of the run that wrote it: choose another "
                "output folder, or move it away"
            )
