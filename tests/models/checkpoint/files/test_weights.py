"""Weights in one file, in several, as safetensors and as torch.save writes them: the same model."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MarianMTModel

from models.checkpoint import load_checkpoint
from models.checkpoint.files.weights import find_weights, read_weights, weights_files, weights_sha256, write_weights
from models.package.folder import sha256
from tests.checkpoints import edit_json, write_json
from tests.models.checkpoint.refusal import refusal

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"


@pytest.fixture
def sharded(folder: Path) -> Path:
    """The same checkpoint as transformers shards it, here in several files of 40 kB."""
    model = MarianMTModel.from_pretrained(folder)
    (folder / SAFE).unlink()
    model.save_pretrained(folder, max_shard_size="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    return folder


def shard_pickles(folder: Path) -> list[str]:
    """Makes two shards of what torch.save writes, and their index. Returns their names."""
    tensors = load_file(folder / SAFE)
    (folder / SAFE).unlink()
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    parts = [dict(list(tensors.items())[half::2]) for half in range(2)]
    for name, part in zip(names, parts, strict=True):
        torch.save(part, folder / name)
    places = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    write_json(folder / f"{PICKLED}.index.json", {"metadata": {}, "weight_map": places})
    return names


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = (dict(load_checkpoint(folder).model.named_parameters()) for folder in (one, other))
    return all(torch.equal(value, theirs[name]) for name, value in ours.items()) and ours.keys() == theirs.keys()


def test_shards_are_the_model_that_one_file_is(sharded: Path, tiny_checkpoint: Path) -> None:
    assert same_weights(sharded, tiny_checkpoint)


def test_shards_of_torch_save_are_it_too(folder: Path, tiny_checkpoint: Path) -> None:
    shard_pickles(folder)
    assert same_weights(folder, tiny_checkpoint)


@pytest.mark.parametrize("zipped", [True, False])
def test_one_file_of_torch_save(folder: Path, tiny_checkpoint: Path, zipped: bool) -> None:
    tensors = load_file(folder / SAFE)
    torch.save(tensors, folder / PICKLED, _use_new_zipfile_serialization=zipped)
    (folder / SAFE).unlink()
    assert same_weights(folder, tiny_checkpoint)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_on_disk_is_widened(folder: Path, dtype: torch.dtype) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / SAFE).items()}
    save_file(tensors, folder / SAFE)
    taken = read_weights(folder / SAFE).take("model.shared.weight", (212, 48))
    assert taken.dtype == torch.float32
    assert torch.equal(taken, tensors["model.shared.weight"].float())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_no_finite_numbers(folder: Path, value: float) -> None:
    tensors = load_file(folder / SAFE)
    tensors["model.shared.weight"][200, 7] = value
    save_file(tensors, folder / SAFE)
    refused(folder, "tensor model.shared.weight has 1 of 10176 values that are no finite numbers")


@pytest.mark.parametrize(("kind", "told"), [("sparse", "is sparse (torch.sparse_coo)"), ("meta", "is without numbers")])
def test_tensors_that_have_not_all_their_numbers(folder: Path, kind: str, told: str) -> None:
    tensors = load_file(folder / SAFE)
    table = tensors["model.shared.weight"]
    torch.save(
        tensors | {"model.shared.weight": table.to_sparse() if kind == "sparse" else table.to(kind)}, folder / PICKLED
    )
    (folder / SAFE).unlink()
    refused(folder, PICKLED, f"tensor model.shared.weight {told}", "save the model with dense tensors")


def test_tensors_without_names(folder: Path) -> None:
    torch.save(dict(enumerate(load_file(folder / SAFE).values())), folder / PICKLED)
    (folder / SAFE).unlink()
    refused(folder, PICKLED, "holds no dictionary of tensors; it has 0, 1")


def test_the_hash_covers_every_shard(sharded: Path, tiny_checkpoint: Path) -> None:
    index = find_weights(sharded)
    assert index.name == f"{SAFE}.index.json"
    shards = weights_files(index)
    lines = "".join(f"{sha256(file)}  {file.name}\n" for file in shards)
    assert weights_sha256(index) == hashlib.sha256(lines.encode()).hexdigest()
    assert weights_sha256(tiny_checkpoint / SAFE) == sha256(tiny_checkpoint / SAFE)
    before = load_checkpoint(sharded).sha256
    last = load_file(shards[-1])
    name = next(iter(last))
    save_file(last | {name: last[name] + 1}, shards[-1])
    assert load_checkpoint(sharded).sha256 != before


def refused(folder: Path, *said: str) -> None:
    message = refusal(folder)
    for part in said:
        assert part in message


def test_a_shard_that_is_not_there(sharded: Path) -> None:
    shard = weights_files(find_weights(sharded))[1]
    shard.unlink()
    refused(sharded, shard.name, "cannot be read: No such file")


def test_a_shard_that_lacks_a_tensor(sharded: Path) -> None:
    shard = weights_files(find_weights(sharded))[1]
    tensors = load_file(shard)
    gone = sorted(tensors)[0]
    del tensors[gone]
    save_file(tensors or {"x": torch.zeros(1)}, shard)
    refused(sharded, f"{SAFE}.index.json says that {shard.name} has tensor {gone}, which it has not")


def test_a_tensor_in_two_shards(sharded: Path) -> None:
    first, second = weights_files(find_weights(sharded))[:2]
    both = load_file(first)
    save_file(load_file(second) | both, second)
    refused(sharded, f"{second.name} has tensor {sorted(both)[0]}, which another shard")


def test_a_shard_cut_short(sharded: Path) -> None:
    shard = weights_files(find_weights(sharded))[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    refused(sharded, f"{shard.name} is not a whole safetensors file")


@pytest.mark.parametrize("place", ["../other/model.safetensors", "/etc/passwd", "", "..", 7, f"{SAFE}.index.json"])
def test_a_shard_of_another_folder(sharded: Path, place: object) -> None:
    index = find_weights(sharded)
    places = json.loads(index.read_text())["weight_map"]
    edit_json(index, weight_map=places | {"model.shared.weight": place})
    refused(sharded, f"tensor model.shared.weight is in {place!r}; expected a file of the same folder")


@pytest.mark.parametrize("places", [None, [], {}, "x"])
def test_an_index_without_tensors(sharded: Path, places: object) -> None:
    edit_json(find_weights(sharded), weight_map=places)
    refused(sharded, "model.safetensors.index.json: weight_map is")


def test_an_index_that_is_not_json(sharded: Path) -> None:
    find_weights(sharded).write_text("{")
    refused(sharded, "model.safetensors.index.json is not JSON")


@pytest.mark.parametrize("name", [SAFE, PICKLED])
def test_a_pointer_of_git_lfs(folder: Path, name: str) -> None:
    (folder / SAFE).unlink()
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n")
    refused(folder, name, "Git LFS has not fetched", "git lfs pull")


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_a_tokenizer_that_git_lfs_has_not_fetched(folder: Path, name: str) -> None:
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n")
    refused(folder, name, "Git LFS has not fetched", "git lfs pull")


def test_weights_that_cannot_be_written_are_told_as_other_files_are(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory") as error:
        write_weights(tmp_path / "none" / SAFE, {"weight": torch.zeros(10)})
    assert (error.value.strerror, error.value.filename) == ("No such file or directory", str(tmp_path / "none" / SAFE))
