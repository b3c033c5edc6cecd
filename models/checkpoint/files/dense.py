"""Linear layers of a checkpoint that are no part of the Transformer."""

import torch

from models.checkpoint.files.reading import TensorFile
from models.encoding.dense import Dense, DenseActivation, DenseSpec

SCORES_FILE = "scores.npy"
"""Of a package: what scores a hidden state, of the pooling "attention"."""


def take_dense(
    tensors: TensorFile, name: str, size: tuple[int, int], activation: DenseActivation, file: str, bias: bool = True
) -> tuple[DenseSpec, Dense]:
    """The layer whose tensors have this name, and what a package says of it by a file name. Raises CheckpointError.

    size: (inputs, outputs)
    """
    inputs, outputs = size
    weight = tensors.take(f"{name}.weight", (outputs, inputs))
    shift = tensors.take(f"{name}.bias", (outputs,)) if bias else torch.zeros(outputs)
    table = torch.cat([weight, shift.unsqueeze(1)], dim=1).numpy()
    return DenseSpec(file=file, inputs=inputs, outputs=outputs, activation=activation), Dense(table, activation)
