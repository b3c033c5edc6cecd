"""The weights of a Hugging Face folder: one file, or several with an index that says which tensor is where."""

import errno
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.architectures.prefix.config import PrefixConfig
from models.architectures.recurrent.config import GATES, RecurrentConfig
from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.foreign import check_quantization, say_what_it_is
from models.checkpoint.files.pointers import check_fetched
from models.checkpoint.files.reading import TensorFile, read_json
from models.config import ModelConfig, ModelShape
from models.package.declared.graphs import NAME_PATTERN
from models.package.folder import sha256

INDEX = ".index.json"
WEIGHTS = (
    "model.safetensors",
    f"model.safetensors{INDEX}",
    "pytorch_model.bin",
    f"pytorch_model.bin{INDEX}",
)
"""The first that there is holds the weights, as in transformers."""
UNSAFE = "Weights only load failed"
"""How PyTorch begins to say that a file is none of its own, or has objects in it."""
ZIP = b"PK\x03\x04"
"""How a file of torch.save begins, but for those of PyTorch before 1.6."""
SYSTEMS = re.compile(r"os error (\d+)")
"""What an error of safetensors has of the system's."""


def find_weights(folder: Path) -> Path:
    """The weights file of a Hugging Face folder, or the index of several. Raises CheckpointError."""
    check_quantization(folder)
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise CheckpointError(
        say_what_it_is(folder) or f"{folder} has no weights: expected {' or '.join(WEIGHTS[::2])}, or their shards"
    )


def weights_files(weights: Path) -> list[Path]:
    """The files with the tensors: the shards that an index names, or the one file. Raises CheckpointError."""
    if not weights.name.endswith(INDEX):
        return [weights]
    return [weights.parent / name for name in sorted(set(_weight_map(weights).values()))]


def weights_sha256(weights: Path) -> str:
    """SHA-256 of the weights file; of several, that of `sha256sum`'s lines for the shards in order of their names.

    Raises CheckpointError.
    """
    files = weights_files(weights)
    if files == [weights]:
        return sha256(weights)
    try:
        return hashlib.sha256("".join(f"{sha256(file)}  {file.name}\n" for file in files).encode()).hexdigest()
    except OSError as error:
        raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}") from error


def read_weights(weights: Path, entry: str | None = None) -> TensorFile:
    """The tensors of .safetensors, of what torch.save wrote, or of the shards of an index.

    Files are mapped into memory, not read. What torch.save wrote is unpickled without running any code.
    entry: of a dictionary that torch.save wrote, that which has the tensors
    Raises CheckpointError.
    """
    if not weights.name.endswith(INDEX):
        return TensorFile(weights, _load(weights, entry))
    places = _weight_map(weights)
    tensors: dict[str, Tensor] = {}
    for file in weights_files(weights):
        found = _load(file)
        if missing := sorted(name for name, place in places.items() if place == file.name and name not in found):
            raise CheckpointError(f"{weights} says that {file.name} has tensor {missing[0]}, which it has not")
        if twice := sorted(tensors.keys() & found.keys()):
            raise CheckpointError(f"{file} has tensor {twice[0]}, which another shard of {weights.name} has, too")
        tensors |= found
    return TensorFile(weights, tensors)


def write_weights(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a .safetensors, marked as PyTorch's. Raises OSError, for which safetensors has an error of its own."""
    try:
        save_file(dict(tensors), file, {"format": "pt"})
    except SafetensorError as error:
        found = SYSTEMS.search(str(error))
        number = int(found[1]) if found else errno.EIO
        raise OSError(number, os.strerror(number) if found else str(error), str(file)) from error


def _layers(config: ModelShape) -> int:
    """Numbers that the layers have at least, over the width."""
    if isinstance(config, RecurrentConfig):
        return (config.encoder_layers + 2 * config.decoder_layers) * GATES[config.cell] * config.width
    if isinstance(config, PrefixConfig):
        return config.decoder_layers * (4 * config.width + 2 * config.ffn)
    assert isinstance(config, ModelConfig)
    shared = config.shared_layers
    encoder, decoder = (min(1, count) if shared else count for count in (config.encoder_layers, config.decoder_layers))
    return encoder * (4 * config.inner(config.encoder_heads) + 2 * config.encoder_ffn) + decoder * (
        4 * config.inner(config.decoder_heads) + 2 * config.decoder_ffn
    )


def check_size(config: ModelShape, weights: Path) -> None:
    """Raises CheckpointError where a model is larger than its weights, before anything of that size is made.

    A number takes a byte at least.
    """
    needed = config.width * (max(config.source_vocab_size, config.target_vocab_size) + _layers(config))
    found = sum(file.stat().st_size for file in weights_files(weights))
    if needed > found:
        raise CheckpointError(
            f"{weights} has {found} bytes; a model of the sizes in its configuration has {needed} numbers or more"
        )


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor -> the file beside the index that has it."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index}: weight_map is {str(places)[:20]!r}; expected an object of tensors and files")
    for name, place in places.items():
        if not isinstance(place, str) or not re.fullmatch(NAME_PATTERN, place) or place.endswith(INDEX):
            raise CheckpointError(f"{index}: tensor {name} is in {place!r}; expected a file of the same folder")
    return places


def _load(file: Path, entry: str | None = None) -> dict[str, Tensor]:
    check_fetched(file)
    try:
        with file.open("rb") as content:
            zipped = content.read(len(ZIP)) == ZIP
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
    if file.suffix == ".safetensors":
        return _load_safetensors(file)
    return _load_pickle(file, zipped, entry)


def _load_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} is not a whole safetensors file: {error}; fetch it again") from error


def _load_pickle(file: Path, mapped: bool, entry: str | None) -> dict[str, Tensor]:
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # whatever a stream of bytes that is no pickle leads to
        reason = str(error).partition("\n")[0]
        if reason.startswith(UNSAFE):  # what it advises would run code of the file
            reason = "it is cut off, no file of torch.save, or has more than tensors"
        raise CheckpointError(f"{file} is not a whole PyTorch weights file: {reason}; fetch it again") from error
    found = f"; it has {', '.join(map(str, list(content)[:5]))}" if isinstance(content, dict) else ""
    if entry is not None:
        content = content.get(entry) if isinstance(content, dict) else None
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        where = "" if entry is None else f" in {entry!r}"
        raise CheckpointError(f"{file} holds no dictionary of tensors{where}{found}")
    for name, tensor in content.items():
        if tensor.is_meta or tensor.layout != torch.strided:
            kind = "without numbers (its device is meta)" if tensor.is_meta else f"sparse ({tensor.layout})"
            raise CheckpointError(f"{file}: tensor {name} is {kind}; save the model with dense tensors on the CPU")
    return content
