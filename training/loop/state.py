"""All that a run needs to go on exactly where it was, and the files it is kept in."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.architectures.architecture import Architecture
from training.data.batches import Position
from training.data.files import new_file
from training.errors import TrainingError
from training.loop.outputs import Outputs

SPARE = 1
"""Checkpoints that are kept besides those to be averaged."""
ANOTHER = "Choose another output folder for another model, or put the experiment back as it was"


@dataclass
class Progress:
    """How far a run has come, and what it has achieved."""

    step: int = 0
    position: Position = field(default_factory=Position)
    best_score: float | None = None
    """Higher is better: BLEU, or the loss with its sign turned."""
    measure: str | None = None
    """Which of the two `best_score` is: "BLEU" or "loss". None: a version that did not say wrote it."""
    worse: int = 0
    """Validations since the best one."""
    processor_seconds: float = 0.0
    """Processor time of all processes until the loss was last looked at, validations included."""


def save_state(
    outputs: Outputs, keep: int, progress: Progress, model: Architecture, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Writes a checkpoint, then deletes all but the last `keep` and a spare one."""
    device = next(model.parameters()).device
    content = {
        "progress": asdict(progress),
        "config": model.config.model_dump(mode="json"),
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }
    save(outputs, outputs.checkpoint(progress.step), content)
    for old in outputs.all_checkpoints()[: -keep - SPARE]:
        old.unlink()


def save(outputs: Outputs, file: Path, content: Mapping[str, object]) -> None:
    """Writes a file whole or not at all. Raises TrainingError where the disk is full."""
    try:
        with new_file(file) as draft, draft.open("wb") as stream:
            torch.save(content, stream)
    except (OSError, RuntimeError) as error:  # of the first torch makes the second now and then, as it closes a file
        first = error if isinstance(error, OSError) else error.__context__
        reason = first.strerror if isinstance(first, OSError) else str(error).splitlines()[0]
        advice = f"{outputs.kept.capitalize()}: make room, then run the same command again"
        raise TrainingError(f"{file} cannot be written: {reason}. {advice}") from error


def load_state(
    file: Path, model: Architecture, optimizers: Sequence[torch.optim.Optimizer], device: torch.device
) -> Progress:
    """Puts a checkpoint back. Raises TrainingError where it is of another model or optimizer."""
    content = load(file)
    check_shape(model, content.get("config", {}), file)
    fill_model(model, content["model"], file)
    try:
        for optimizer, kept in zip(optimizers, content["optimizers"], strict=True):
            fill_optimizer(optimizer, kept)
    except ValueError as error:  # another number of them, or of what they update
        raise TrainingError(
            f"{file} is of another optimizer or of other frozen parameters. Choose another output folder, or put "
            "optimizer.kind and start.freeze back as they were"
        ) from error
    torch.set_rng_state(content["random"])
    if device.type == "cuda" and content["random_cuda"] is not None:
        torch.cuda.set_rng_state(content["random_cuda"], device)
    return Progress(**content["progress"] | {"position": Position(**content["progress"]["position"])})


def fill_optimizer(optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    """Puts back what it has seen of gradients. Its settings stay those of the experiment, which may be others now.

    Raises ValueError where it updates other parameters.
    """
    settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(kept)
    for group, asked in zip(optimizer.param_groups, settings, strict=True):
        group.update(asked)


def load(file: Path) -> dict[str, Any]:
    """Reads what `save` wrote, on the CPU. Raises TrainingError."""
    try:
        content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file leads to: what torch says of it leads nobody on
        known = isinstance(error, OSError) and error.strerror
        reason = known or "it is damaged, or was not written by training"
        raise TrainingError(f"{file} cannot be read: {reason}. Delete it to go on from an earlier one") from error
    return content


def check_shape(model: Architecture, theirs: Mapping[str, object], file: Path) -> None:
    """Raises TrainingError for the first that a checkpoint's model is and this one is not: weights do not say all.

    theirs: the checkpoint's configuration; an older one has none
    """
    for name, ours in model.config.model_dump(mode="json").items():
        if name in theirs and theirs[name] != ours:
            raise TrainingError(
                f"{file} is of a model whose {name} is {theirs[name]}; that of this experiment is {ours}. {ANOTHER}"
            )


def fill_model(model: Architecture, weights: Mapping[str, Tensor], file: Path) -> None:
    """Copies weights into a model. Raises TrainingError for the first that does not fit."""
    expected = model.state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        ours, theirs = (list(side[name].shape) if name in side else None for side in (expected, weights))
        if ours != theirs:
            raise TrainingError(
                f"{file}: {name} has shape {theirs}; the model of this experiment has {ours}. {ANOTHER}"
            )
    model.load_state_dict(weights)


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the weights of some checkpoints (Vaswani et al. 2017, 6.1). What is frozen keeps its bits."""
    total: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in load(file)["model"].items():
            total[name] = total.get(name, 0) + tensor.double()
    return {name: (tensor / len(files)).float() for name, tensor in total.items()}
