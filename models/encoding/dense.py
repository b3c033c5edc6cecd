"""A linear layer that vectors go through: the Dense of sentence-transformers, and those of a classifier."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.config import Frozen

DenseActivation = Literal["identity", "tanh", "relu"]
ACTIVATIONS: dict[DenseActivation, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "identity": lambda values: values,
    "tanh": np.tanh,
    "relu": lambda values: np.maximum(values, np.float32(0.0)),
}


class DenseError(Exception):
    """A file of such a layer that is not what the manifest says."""


class DenseSpec(Frozen):
    """What a package says of one."""

    file: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """float32 [outputs, inputs + 1] as numpy keeps it (.npy); the last column is the bias."""
    inputs: int = Field(gt=0)
    outputs: int = Field(gt=0)
    activation: DenseActivation


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """One with its numbers. It is equal to itself alone."""

    table: NDArray[np.float32]
    """[outputs, inputs + 1]."""
    activation: DenseActivation

    @classmethod
    def load(cls, folder: Path, spec: DenseSpec) -> "Dense":
        """Raises DenseError."""
        try:
            # Mapped, for its header may tell of more than any memory has room for; and .npy alone is.
            table = np.lib.format.open_memmap(folder / spec.file, mode="r")
        except Exception as error:  # of a header that is none, whatever Python says of it
            raise DenseError(f"{spec.file} cannot be read: {error}") from error
        shape = [spec.outputs, spec.inputs + 1]
        if list(table.shape) != shape or table.dtype != np.float32:
            raise DenseError(f"{spec.file} has {table.dtype} {list(table.shape)}; the manifest has float32 {shape}")
        return cls(np.array(table), spec.activation)

    def save(self, folder: Path, name: str) -> None:
        """Writes its numbers."""
        np.save(folder / name, self.table, allow_pickle=False)

    def of(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """[..., inputs] -> [..., outputs]."""
        return ACTIVATIONS[self.activation](vectors @ self.table[:, :-1].T + self.table[:, -1])
