"""Reads the files of a checkpoint folder. Whatever is wrong with one becomes a CheckpointError."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from models.architectures import key_of
from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.pointers import check_fetched
from models.package.declared.graphs import NAME_PATTERN

PART = re.compile(r"(.+)\[\d+/(\d+)\]")
"""A part of a tensor, counted from 1, and of how many."""


class JsonKeys(BaseModel):
    """The keys that matter of a JSON file. Others are there, and are left alone."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    SAME: ClassVar[Mapping[str, str]] = {}
    """Other names of keys, by which transformers knows them, too."""
    BESIDE: ClassVar[frozenset[str]] = frozenset()
    """Keys that a reader looks at by itself."""

    @classmethod
    def known(cls) -> frozenset[str]:
        """The keys that something is made of."""
        return cls.BESIDE.union(cls.model_fields, cls.SAME)


S = TypeVar("S", bound=JsonKeys)


def read_json(file: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises CheckpointError."""
    check_fetched(file)
    content = _parsed(file)
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} is not a JSON object, but begins with {str(content)[:20]!r}")
    return content


def parse(settings: type[S], content: dict[str, Any], file: Path | str) -> S:
    """Checks the keys that matter."""
    check_same(settings.SAME, content, file)
    try:
        return settings.model_validate(content)
    except ValidationError as error:
        raise invalid(error, file) from error


def check_same(names: Mapping[str, str], content: Mapping[str, Any], file: Path | str) -> None:
    """Raises CheckpointError where two names of one key have different values: see `JsonKeys.SAME`."""
    for other, key in names.items():
        if other in content and content[other] != content.get(key, content[other]):
            raise CheckpointError(
                f"{file}: {other} is {content[other]!r} and {key} {content[key]!r}; to transformers they are the same "
                "key: take out the one that is wrong"
            )


def invalid(error: ValidationError, file: Path | str) -> CheckpointError:
    """The first thing that is wrong with a file's values."""
    first = error.errors()[0]
    key = key_of(first["loc"])
    if first["type"] == "missing":
        return CheckpointError(f"{file}: {key} is missing")
    found = f"{key} is {first['input']!r}; " if key else ""
    said = first["msg"].removeprefix("Value error, ")  # what pydantic puts before a message of our own
    return CheckpointError(f"{file}: {found}{said}")


def read_json_list(file: Path) -> list[dict[str, Any]]:
    """Reads a JSON array of objects. Raises CheckpointError."""
    content = _parsed(file)
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise CheckpointError(f"{file} is not a JSON array of objects, but begins with {str(content)[:20]!r}")
    return content


def _parsed(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not JSON: {error}") from error


class TensorFile:
    """The named tensors of a weights file. `take` what is expected, then see that nothing is `left`."""

    def __init__(self, file: Path, tensors: dict[str, Tensor]) -> None:
        self.file = file
        self._tensors = tensors

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, shape: tuple[int, ...], transposed: bool = False) -> Tensor:
        """The tensor of this name, in fp32. It is not among those `left` any more.

        transposed: it lies in the file as the transpose of what is returned
        Raises CheckpointError where it is missing, has another shape, or has values that are no finite numbers.
        """
        expected = list(reversed(shape)) if transposed else list(shape)
        if name not in self._tensors:
            raise CheckpointError(f"{self.file}: tensor {name} is missing; expected one of shape {expected}")
        tensor = self._tensors.pop(name)
        if list(tensor.shape) != expected:
            raise CheckpointError(f"{self.file}: tensor {name} has shape {list(tensor.shape)}; expected {expected}")
        if not tensor.is_floating_point():
            raise CheckpointError(f"{self.file}: tensor {name} is {tensor.dtype}; expected floating-point numbers")
        values = tensor.float()
        if not _is_finite(values):
            wrong = int((~torch.isfinite(values)).sum())
            raise CheckpointError(
                f"{self.file}: tensor {name} has {wrong} of {values.numel()} values that are no finite numbers, as of "
                "a training that diverged; take an earlier checkpoint"
            )
        return values.T if transposed else values

    def differ(self, first: str, second: str) -> bool:
        """Whether there are two tensors of these names, of different values."""
        both = self._tensors.get(first), self._tensors.get(second)
        return both[0] is not None and both[1] is not None and not torch.equal(both[0], both[1])

    def merge(self, copy: str, original: str) -> None:
        """Makes one of two names for the same tensor. Raises CheckpointError."""
        if copy in self._tensors:
            tensor = self._tensors.pop(copy)
            if not torch.equal(self._tensors.setdefault(original, tensor), tensor):
                raise CheckpointError(f"{self.file}: {copy} differs from {original}, to which config.json ties it")

    def take_all(self) -> dict[str, Tensor]:
        """All tensors that are left, in fp32, each in memory of its own."""
        names = self.left
        return {name: self._tensors.pop(name).to(torch.float32, copy=True).contiguous() for name in names}

    def split(self, name: str) -> None:
        """Makes the parts of the tensor of which a name like "in_proj_weight[2/3]" is one. Raises CheckpointError."""
        part = PART.fullmatch(name)
        if part is None or part[1] not in self._tensors:
            return
        whole, parts = self._tensors[part[1]], int(part[2])
        if not whole.dim() or not parts or whole.shape[0] % parts:
            raise CheckpointError(f"{self.file}: {name} is a part of {part[1]}, whose shape is {list(whole.shape)}")
        del self._tensors[part[1]]
        self._tensors |= {f"{part[1]}[{index + 1}/{parts}]": it for index, it in enumerate(whole.chunk(parts))}

    def squeeze(self, name: str) -> None:
        """Takes the axes of one number out of a tensor, if there is one of this name."""
        if name in self._tensors:
            self._tensors[name] = self._tensors[name].squeeze()

    def without_prefix(self, prefix: str) -> "TensorFile":
        """The same, with names that lack a prefix where they had it."""
        return TensorFile(self.file, {name.removeprefix(prefix): tensor for name, tensor in self._tensors.items()})

    def with_prefix(self, prefix: str, others: tuple[str, ...]) -> "TensorFile":
        """The same, with a prefix before every name but `others`, where no name has it."""
        if any(name.startswith(prefix) for name in self._tensors):
            return self
        named = ((name if name in others else prefix + name, tensor) for name, tensor in self._tensors.items())
        return TensorFile(self.file, dict(named))

    def with_endings(self, endings: Mapping[str, str]) -> "TensorFile":
        """The same, with another ending where a name has one of these. Raises CheckpointError."""
        renamed = {}
        for name, tensor in self._tensors.items():
            old = next((ending for ending in endings if name.endswith(ending)), "")
            renamed[name.removesuffix(old) + endings.get(old, "")] = tensor
        if len(renamed) < len(self._tensors):
            raise CheckpointError(f"{self.file} has a tensor under two names: {', '.join(endings)} and the new one")
        return TensorFile(self.file, renamed)

    def leave(self, prefixes: tuple[str, ...]) -> None:
        """Forgets the tensors whose names begin with one of these: nothing is made of them."""
        self._tensors = {name: tensor for name, tensor in self._tensors.items() if not name.startswith(prefixes)}

    @property
    def left(self) -> list[str]:
        """Names of the tensors that were not taken."""
        return sorted(self._tensors)


def _is_finite(values: Tensor) -> bool:
    """Of all of them: by the least and the most, which take a fortieth of the time of `torch.isfinite`."""
    return not values.numel() or all(bound.isfinite() for bound in torch.aminmax(values))


def notices(folder: Path) -> dict[str, Path]:
    """Licences and notices, which go wherever the weights go."""
    files = (file for pattern in ("LICENSE*", "NOTICE*") for file in sorted(folder.glob(pattern)))
    return {file.name: file for file in files if file.is_file() and re.fullmatch(NAME_PATTERN, file.name)}
