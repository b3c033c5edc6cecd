"""Puts a checkpoint's tensors into a model: a family is a table of renames."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from models.architectures.architecture import Architecture
from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.reading import TensorFile


@dataclass(frozen=True)
class Rename:
    """A parameter of the model, and the tensors that make it up, one below the other."""

    target: str
    sources: tuple[str, ...]
    shape: tuple[int, ...] | None = None
    """Of each source, where that does not follow from the parameter's: it pads vocabularies."""
    transposed: bool = False
    """In the file, each source is the transpose of its part of the parameter."""
    optional: bool = False
    """Without it, the parameter keeps what it has."""


def linear(target: str, *sources: str) -> list[Rename]:
    """The renames of a module with a weight and a bias."""
    return [Rename(f"{target}.{part}", tuple(f"{name}.{part}" for name in sources)) for part in ("weight", "bias")]


def fill(model: Architecture, renames: Iterable[Rename], copies: Mapping[str, str], tensors: TensorFile) -> None:
    """Copies every tensor into its parameter. Raises CheckpointError where one is missing, left over or mis-shaped.

    copies: tensors that may be in the file a second time, and the name they are taken by
    """
    for copy, original in copies.items():
        tensors.merge(copy, original)
    parameters = dict(model.named_parameters())
    for rename in renames:
        if not rename.optional or rename.sources[0] in tensors:
            _copy(rename, parameters[rename.target], tensors)
    if tensors.left:
        more = f" and {len(tensors.left) - 1} more" if len(tensors.left) > 1 else ""
        raise CheckpointError(
            f"{tensors.file}: the model that its configuration describes has no tensor {tensors.left[0]}{more}"
        )


@torch.no_grad()
def _copy(rename: Rename, parameter: torch.nn.Parameter, tensors: TensorFile) -> None:
    rows, *columns = parameter.shape
    shape = rename.shape or (rows // len(rename.sources), *columns)
    value = torch.cat([tensors.take(name, shape, rename.transposed) for name in rename.sources]).reshape(-1, *columns)
    if len(value) > rows or (rename.shape is None and len(value) < rows):
        raise CheckpointError(f"{tensors.file}: {rename.target} has {rows} rows; its tensors have {len(value)}")
    parameter[: len(value)] = value
