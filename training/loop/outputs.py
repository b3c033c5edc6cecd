"""The folder of a run: what it writes, and where."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training.data.files import claimed
from training.errors import TrainingError
from training.loop.processes import Processes

PREFIX, SUFFIX = "step-", ".pt"
"""Of the names of checkpoints."""
VOCABULARY = {"source.spm", "target.spm", "vocab.json", "tokenizer_config.json", "tokenizer.json"}
"""Files of `vocabulary`, beside the notices of a checkpoint it is from."""


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

    @property
    def kept(self) -> str:
        """What a failure leaves, in words."""
        return "the last checkpoint is intact" if self.all_checkpoints() else "there is no checkpoint yet"

    @contextmanager
    def claimed(self, processes: Processes) -> Iterator[None]:
        """While it lasts no other run writes here.

        Raises TrainingError where one does, or where `model` or `vocabulary` is no run's.
        """
        if not processes.first:  # which claims it for all
            yield
            return
        with claimed(self.folder, "another output folder"):
            self._check_replaced()
            yield

    def _check_replaced(self) -> None:
        """The finished model must not take the place of something that no run here wrote, nor the vocabulary."""
        if self.all_checkpoints():
            return
        if self.model.exists():
            raise TrainingError(
                f"{self.model} is there, and {self.folder} has no checkpoint of the run that wrote it: choose another "
                "output folder, or move it away"
            )
        names = sorted(os.listdir(self.vocabulary)) if self.vocabulary.exists() else []
        if foreign := [name for name in names if name not in VOCABULARY and not name.startswith(("LICENSE", "NOTICE"))]:
            raise TrainingError(
                f"{self.vocabulary} is a folder of the run's own, and has {foreign[0]}: choose another output folder, "
                "or move it away"
            )
