"""Writes a model of any architecture as the folder that `models.checkpoint.described.reader` reads."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from models.architectures.architecture import Architecture
from models.checkpoint.contents import CheckpointError
from models.checkpoint.described.reader import DESCRIPTION, table_shape
from models.checkpoint.files.reading import notices
from models.tokenizers.sentencepiece_pair import SentencePieceSpec

WEIGHTS = "model.safetensors"


def write_described(
    folder: Path, model: Architecture, tokenizer: SentencePieceSpec, files: Path, languages: tuple[str, str]
) -> None:
    """Writes checkpoint.toml, model.safetensors (fp16), the tokenizer's files and the licences.

    files: folder with the tokenizer's files, and the licences and notices of the weights, if there are any
    languages: BCP-47 tags of source and target
    Raises CheckpointError where a value is too large for fp16, and OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(save(tensors(model), {"format": "pt"}))
    source, target = languages
    described: dict[str, object] = {
        "weights": WEIGHTS,
        "source_languages": [source],
        "target_languages": [target],
        "tokenizer": tokenizer.model_dump(mode="json", exclude_none=True),
        "model": model.config.model_dump(mode="json", exclude_none=True),
    }
    lines = [f"{key} = {_toml(value)}\n" for key, value in described.items()]
    (folder / DESCRIPTION).write_text("".join(lines), encoding="utf-8")
    for name in (*tokenizer.files, *notices(files)):
        shutil.copyfile(files / name, folder / name)


@torch.no_grad()
def tensors(model: Architecture) -> dict[str, Tensor]:
    """What is trained, in fp16, without the rows that pad vocabularies. Raises CheckpointError."""
    found = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        shape = table_shape(name, model.config)
        kept = parameter if shape is None else parameter[: shape[0]]
        found[name] = kept.detach().cpu().half().contiguous()
        if not found[name].isfinite().all():
            raise CheckpointError(f"{name} has values that are no finite numbers in fp16: the training diverged")
    return found


def _toml(value: Any) -> str:
    """A value, in one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
