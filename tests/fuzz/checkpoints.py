"""checkpoint.toml beside the weights of a small model, which are made here."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

from models.architectures.build import build
from models.checkpoint import CheckpointError, load_checkpoint
from models.checkpoint.described.reader import DESCRIPTION, read_description
from tests.fuzz import CORPUS, Attempt

WHOLE = CORPUS / "checkpoints" / "whole.toml"


@contextmanager
def trying() -> Iterator[Attempt]:
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        description = read_description(WHOLE)
        weights = {
            name: tensor.clone() for name, tensor in build(description.model).named_parameters() if tensor.requires_grad
        }
        save_file(weights, Path(folder) / description.weights)
        yield lambda data: attempt(Path(folder), data)


def attempt(folder: Path, data: bytes) -> None:
    """It is refused, or it makes a model of the weights."""
    (folder / DESCRIPTION).write_bytes(data)
    with suppress(CheckpointError):
        load_checkpoint(folder)
