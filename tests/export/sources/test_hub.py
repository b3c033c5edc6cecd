"""hf:OWNER/NAME, against a server that speaks the Hub's protocol: huggingface_hub is the real one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from export.__main__ import main
from export.sources import Fetched, fetch
from models.package.folder import Package, sha256
from tests.checkpoints import ROOT
from tests.export.sources.hub_server import COMMIT, Hub, hub
from tests.export.sources.limits import files_of_at_most
from tests.export.sources.refusal import refusal

REPOSITORY = "Helsinki-NLP/opus-mt-en-pt"
NAME = f"hf:{REPOSITORY}"
OTHERS = {"onnx/model.onnx": b"ONNX", "tf_model.h5": b"\x89HDF", "pytorch_model.bin": b"PK", ".gitattributes": b"*"}
"""Files that export does not read."""
TEXTS = {"NOTICE": b"By the authors of the model.\n", "README.md": b"# A model"}
"""What its authors say."""
NOBODY = "http://127.0.0.1:9"
"""Where nothing listens."""

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def served(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """What huggingface_hub talks to in this process, which has read its variables already."""
    files = {file.name: file.read_bytes() for file in tiny_checkpoint.iterdir()}
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    with hub(REPOSITORY, files | OTHERS | TEXTS) as served:
        point_to(served.url, monkeypatch)
        yield served


def point_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As HF_ENDPOINT does."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")


def obtain(name: str = NAME) -> Fetched:
    return fetch(name, "", lambda _: None)


def refused(capsys: Capture, folder: Path, name: str = NAME) -> str:
    """What is said of a checkpoint that cannot be had. No package is there, nor the beginning of one."""
    assert main([name, "--out", str(folder / "packages" / "en-pt")]) == 2
    assert not (folder / "packages").exists()
    return refusal(capsys)


@pytest.mark.timeout(600)
def test_a_model_of_the_hub_is_pulled(served: Hub, tiny_checkpoint: Path, tmp_path: Path) -> None:
    kept = tmp_path / "packages"
    variables = {
        "HF_ENDPOINT": served.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": "",
        "DRAGOMAN_HOME": str(kept),
    }
    target = kept / "Helsinki-NLP-opus-mt-en-pt"
    result = subprocess.run(
        [sys.executable, "-m", "dragoman", "pull", NAME, "--verify-samples", "1"],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    *_, licence, way = result.stdout.splitlines()
    assert licence == "Licence: By the authors of the model. (NOTICE)"
    assert way == f"Or by its name: dragoman serve {target.name}"
    package = Package.open(target)
    assert package.manifest.name == "opus-mt-en-pt"
    source = package.manifest.checkpoint
    assert (source.name, source.pinned) == ("opus-mt-en-pt", f"{NAME}@{COMMIT}")
    assert source.sha256 == sha256(tiny_checkpoint / "model.safetensors")
    assert (package.folder / "NOTICE").read_bytes() == served.files["NOTICE"]
    assert served.fetched() == set(served.files) - set(OTHERS)
    assert (tmp_path / "home" / "hub").exists()


def test_weights_of_pytorch_where_there_are_no_others(served: Hub) -> None:
    del served.files["model.safetensors"]
    obtain(f"{NAME}@{COMMIT}")
    assert "pytorch_model.bin" in served.fetched()
    assert "tf_model.h5" not in served.fetched()


def test_shards_that_the_index_names_are_fetched(served: Hub) -> None:
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    places = dict(zip(("one", "two"), shards, strict=True))
    served.files |= {name: served.files["model.safetensors"] for name in [*shards, "model-00003.safetensors"]}
    served.files["model.safetensors.index.json"] = json.dumps({"weight_map": places}).encode()
    del served.files["model.safetensors"]
    obtain()
    assert {*shards, "model.safetensors.index.json"} <= served.fetched()
    assert not {"model-00003.safetensors", "pytorch_model.bin"} & served.fetched()


def test_an_index_that_leads_out_of_the_folder(served: Hub, capsys: Capture, tmp_path: Path) -> None:
    del served.files["model.safetensors"]
    served.files["model.safetensors.index.json"] = json.dumps({"weight_map": {"one": "../../token"}}).encode()
    assert "tensor one is in '../../token'; expected a file of the same folder" in refused(capsys, tmp_path)


def test_an_adapter_is_refused_before_its_weights_are_fetched(served: Hub, capsys: Capture, tmp_path: Path) -> None:
    """Where it is of a kind that is not merged here."""
    served.files = {"adapter_config.json": b'{"peft_type": "IA3"}', "adapter_model.safetensors": b"weights"}
    assert "peft_type is 'IA3', which is not merged here; merge it with peft" in refused(capsys, tmp_path)
    assert "adapter_model.safetensors" not in served.fetched()


def test_a_second_run_fetches_nothing(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = obtain()
    assert first.pinned == f"{NAME}@{COMMIT}"
    served.requests.clear()
    assert obtain() == first
    assert served.requests == [f"/api/models/{REPOSITORY}/revision/main"]
    served.requests.clear()
    assert obtain(first.pinned) == first
    assert served.requests == []
    point_to(NOBODY, monkeypatch)
    assert obtain() == first, "the cache has what main was"


@pytest.mark.usefixtures("served")
def test_no_network(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_to(NOBODY, monkeypatch)
    said = refused(capsys, tmp_path)
    assert f"{NAME}: {NOBODY} cannot be reached, and the cache lacks files of it" in said
    assert "check the connection, and HF_ENDPOINT if it is set" in said


def test_network_that_is_switched_off(
    served: Hub, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "cannot be reached, and the cache lacks files of it" in refused(capsys, tmp_path)
    assert served.requests == []


LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
ERRORS = {
    "unknown, or private": ((401, "RepoNotFound"), "has no such model, or it is private: check the name, or " + LOG_IN),
    "unknown to one who is logged in": ((404, "RepoNotFound"), "has no such model, or it is private: check the name"),
    "gated": ((403, "GatedRepo"), f"is gated: accept its terms at {{url}}/{REPOSITORY}, then {LOG_IN}"),
    "forbidden": ((403, ""), f"answers 403: {LOG_IN}"),
    "out of order": ((503, ""), "answers 503: try again later"),
}


@pytest.mark.parametrize(("error", "expected"), ERRORS.values(), ids=ERRORS.keys())
def test_what_the_hub_refuses(
    served: Hub, capsys: Capture, tmp_path: Path, error: tuple[int, str], expected: str
) -> None:
    served.error = error
    said = refused(capsys, tmp_path)
    assert said.startswith(f"error: {NAME}: ")
    assert expected.format(url=served.url) in said


def test_a_revision_that_there_is_not(served: Hub, capsys: Capture, tmp_path: Path) -> None:
    said = refused(capsys, tmp_path, f"{NAME}@v2")
    assert f"there is no revision 'v2'; the others are at {served.url}/{REPOSITORY}/commits/main" in said


def test_a_name_that_cannot_be_one(served: Hub, capsys: Capture, tmp_path: Path) -> None:
    said = refused(capsys, tmp_path, "hf:a/b/c")
    assert "hf:a/b/c: is no name of the Hub; expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION" in said
    assert served.requests == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'; supported: bart, "),
        (None, "has no config.json, so it is no checkpoint of Hugging Face's"),
    ],
)
def test_another_family_is_refused_before_its_weights_are_fetched(
    served: Hub, capsys: Capture, tmp_path: Path, config: object, expected: str
) -> None:
    del served.files["config.json"]
    if config is not None:
        served.files["config.json"] = json.dumps(config).encode()
    assert expected in refused(capsys, tmp_path)
    assert not any(name.startswith(("model.", "pytorch_model.")) for name in served.fetched())


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.json"])
def test_a_file_with_another_hash(served: Hub, capsys: Capture, tmp_path: Path, name: str) -> None:
    served.damaged.add(name)
    said = refused(capsys, tmp_path)
    assert f"{name} was damaged, on the way or here" in said
    assert "It was removed; run the command again to fetch it again" in said
    served.damaged.clear()
    obtain()


def test_half_a_download_goes_on(served: Hub, capsys: Capture, tmp_path: Path) -> None:
    served.broken.add("model.safetensors")
    said = refused(capsys, tmp_path)
    assert f"error: {NAME}: " in said
    served.broken.clear()
    obtain()


def test_a_full_disk_is_told_with_its_place(served: Hub, capsys: Capture, tmp_path: Path) -> None:
    served.files["source.spm"] = bytes(100_000)
    with files_of_at_most(50_000):
        said = refused(capsys, tmp_path)
    way = "Run the command again: it goes on where it stopped"
    assert said == f"error: {NAME}: {constants.HF_HUB_CACHE}: File too large. {way}"
    obtain()
