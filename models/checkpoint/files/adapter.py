"""LoRA adapters, as the library peft saves them: merged into the weights of their base model.

A weight becomes W + scale B A, as `merge_and_unload` of peft makes it: Hu et al. 2022, "LoRA: Low-Rank Adaptation of
Large Language Models", section 4.1.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.foreign import MERGE
from models.checkpoint.files.reading import JsonKeys, TensorFile, parse, read_json
from models.checkpoint.files.scratch import scratch
from models.checkpoint.files.weights import WEIGHTS, find_weights, read_weights, write_weights

CONFIG = "adapter_config.json"
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
PREFIX = "base_model.model."
"""Of all names of an adapter's tensors."""
PAIRS = {".lora_A.weight": ".lora_B.weight", ".lora_embedding_A": ".lora_embedding_B"}
"""How the names of A end, and those of B."""
SECONDS = {second: first for first, second in PAIRS.items()}
TIED = re.compile(r"(.*\.)?shared\.weight")
"""The matrix that a T5 or a BART has in several places."""
TRAINING = (
    *("task_type", "inference_mode", "auto_mapping", "peft_version", "lora_dropout", "target_modules"),
    *("exclude_modules", "layers_to_transform", "layers_pattern", "modules_to_save", "bias", "loftq_config"),
    *("runtime_config", "megatron_core", "qalora_group_size", "ensure_weight_tying", "rank_pattern"),
)
"""Keys that say how an adapter was trained, or once more what its tensors say."""
OWN = ("adapter_*", "README*", ".*", *(f"{name}*" for name in WEIGHTS))
"""Files that belong to one of the two folders alone."""
HUB_NAME = re.compile(r"([\w.-]+/)?[\w.-]+")
"""How models of the Hub are called."""


class AdapterConfig(JsonKeys):
    """What adapter_config.json says."""

    peft_type: Literal["LORA"]
    base_model_name_or_path: str
    revision: str | None = None
    """Of the base model, where it is one of the Hub."""
    r: int = Field(gt=0)
    lora_alpha: float
    use_rslora: bool = False
    alpha_pattern: dict[str, float] = Field(default_factory=dict)
    init_lora_weights: Literal[True, False, "gaussian"] = True
    """Other ways to begin change the base model, too."""

    @field_validator("alpha_pattern")
    @classmethod
    def _patterns(cls, alphas: dict[str, float]) -> dict[str, float]:
        for key in alphas:
            try:
                _named_by(key)
            except re.error as error:
                raise ValueError(f"{key!r} is no regular expression: {error}") from error
        return alphas

    def scale(self, module: str, rank: int) -> float:
        """Of what is added to a module's weight."""
        own = (alpha for key, alpha in self.alpha_pattern.items() if _named_by(key).match(module))
        return next(own, self.lora_alpha) / (math.sqrt(rank) if self.use_rslora else rank)


def _named_by(key: str) -> re.Pattern[str]:
    """What the names of the modules match that a key of a pattern is about, as in peft."""
    return re.compile(rf"(.*\.)?({key})$")


@contextmanager
def whole(folder: Path, fetch: Callable[[str], Path]) -> Iterator[Path]:
    """A checkpoint's folder: this one, or, of an adapter's, one that is there meanwhile.

    Raises CheckpointError, and OSError where the merged weights have no room.

    fetch: gets a base model of the Hub, OWNER/NAME or OWNER/NAME@REVISION, and raises what it likes
    """
    if not (folder / CONFIG).is_file():
        yield folder
        return
    config = read_config(folder)
    base = _base(folder, config, fetch)
    with scratch() as merged:
        _link(base, merged)
        _link(folder, merged)
        tensors = merge(read_weights(find_weights(base)), read_weights(_adapter(folder)), config)
        write_weights(merged / WEIGHTS[0], tensors)
        del tensors
        yield merged


def read_config(folder: Path) -> AdapterConfig:
    """What an adapter says of itself. Raises CheckpointError where it is one of another kind."""
    file = folder / CONFIG
    content = read_json(file)
    _check_rest(content, file)
    return parse(AdapterConfig, content, file)


@torch.no_grad()
def merge(base: TensorFile, adapter: TensorFile, config: AdapterConfig) -> dict[str, Tensor]:
    """The base model's tensors in fp32, changed as the adapter says. Raises CheckpointError."""
    tensors, parts = base.take_all(), adapter.take_all()
    if not parts:
        raise CheckpointError(f"{adapter.file} has no tensors: the base model would be what it was")
    for name, part in parts.items():
        if end := _ending(name, PAIRS):
            module = name.removesuffix(end).removeprefix(PREFIX)
            added = _product(parts, name, end, adapter) * config.scale(module, part.shape[0])
            added = added.T if "embedding" in end else added
            _changed(tensors, f"{module}.weight", added, adapter).add_(added)
        elif end := _ending(name, SECONDS):  # which its first one is multiplied with
            _there(parts, name.removesuffix(end) + SECONDS[end], adapter)
        else:  # a bias, or a module that was trained as a whole
            own = name.removeprefix(PREFIX).replace(".base_layer.", ".")
            _check_place(own, adapter)
            _changed(tensors, own, part, adapter).copy_(part)
    return tensors


def _ending(name: str, endings: Iterable[str]) -> str | None:
    return next((end for end in endings if name.endswith(end)), None)


def _product(parts: Mapping[str, Tensor], first: str, end: str, adapter: TensorFile) -> Tensor:
    """B A, of an A by its name [outputs, inputs]. Raises CheckpointError where they do not go together."""
    second = first.removesuffix(end) + PAIRS[end]
    down, up = parts[first], _there(parts, second, adapter)
    if not (down.dim() == up.dim() == 2 and down.shape[0] == up.shape[1] > 0):
        raise CheckpointError(
            f"{adapter.file}: {first} has shape {list(down.shape)} and {second} {list(up.shape)}; expected "
            "[rank, inputs] and [outputs, rank]"
        )
    return up @ down


def _there(parts: Mapping[str, Tensor], name: str, adapter: TensorFile) -> Tensor:
    if name not in parts:
        raise CheckpointError(f"{adapter.file}: tensor {name} is missing")
    return parts[name]


def _check_place(name: str, adapter: TensorFile) -> None:
    """Raises CheckpointError where peft has put a matrix into one of its places, and merging would into all."""
    if TIED.fullmatch(name):
        raise CheckpointError(
            f"{adapter.file} has a {name} of its own, by modules_to_save: the model has that matrix in several places, "
            "and peft trains another for one of them, which its output does without. Train it by target_modules, or "
            "the adapter without it"
        )


def _changed(tensors: dict[str, Tensor], name: str, by: Tensor, adapter: TensorFile) -> Tensor:
    if name not in tensors or tensors[name].shape != by.shape:
        found = list(tensors[name].shape) if name in tensors else "no such tensor"
        raise CheckpointError(
            f"{adapter.file} changes {name} {list(by.shape)}; the base model has {found}: name the model that it was "
            f"trained upon in {CONFIG}, or {MERGE}"
        )
    return tensors[name]


def _check_rest(content: dict[str, Any], file: Path) -> None:
    """Raises CheckpointError for another kind of adapter, and for what a LoRA may have besides."""
    for key, value in content.items():
        other = key == "peft_type" and value != "LORA"
        if other or (value and key not in AdapterConfig.model_fields and key not in TRAINING):
            raise CheckpointError(f"{file}: {key} is {value!r}, which is not merged here; {MERGE}")


def _base(folder: Path, config: AdapterConfig, fetch: Callable[[str], Path]) -> Path:
    """A folder, beside the adapter or anywhere; else a model of the Hub."""
    name = config.base_model_name_or_path
    for place in (folder / name, Path(name)):
        if name and place.is_dir():
            return place
    if not HUB_NAME.fullmatch(name):
        raise CheckpointError(
            f"{folder / CONFIG}: base_model_name_or_path is {name!r}, which is no folder here and no name of the Hub; "
            "write the path of that model there"
        )
    return fetch(f"{name}@{config.revision}" if config.revision else name)


def _adapter(folder: Path) -> Path:
    for name in ADAPTERS:
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(f"{folder} has {CONFIG} and no {' or '.join(ADAPTERS)}")


def _link(folder: Path, merged: Path) -> None:
    """Puts what is no weight there, in place of what is there by this name.

    Folders too: those of sentence-transformers have a Pooling or a Dense each.
    """
    for file in folder.iterdir():
        if file.exists() and not any(fnmatch(file.name, pattern) for pattern in OWN):
            (merged / file.name).unlink(missing_ok=True)
            (merged / file.name).symlink_to(file.resolve())
