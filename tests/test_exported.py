"""A kept package is used again only where nothing has changed that decides what it is."""

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.checkpoints import ROOT
from tests.exported import CODE, place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The code that exports, to be changed."""
    for folder in CODE:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("zoo", "__pycache__"))
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    return tmp_path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_options_decide(root: Path, checkpoint: Path) -> None:
    options = [(), ("--precision", "fp16"), ("--keep-typography",), ("--keep-typography", "--no-shortlist")]
    places = {place(root, "tiny", checkpoint, chosen, root) for chosen in options}
    assert len(places) == len(options)
    assert place(root, "tiny", checkpoint, options[1], root) in places


@pytest.mark.parametrize(
    "file",
    ["models/config.py", "models/package/manifest.py", "engine/cpu/decoder.py", "export/tracing/trace.py"]
    + [f"engine/cuda/graphs/{name}.onnx" for name in ("ahead", "move")]
    + ["checkpoint/config.json"],
)
def test_code_what_lies_beside_it_and_the_checkpoint_decide(root: Path, checkpoint: Path, file: str) -> None:
    before = place(root, "tiny", checkpoint, (), root)
    assert place(root, "tiny", checkpoint, (), root) == before
    with (root / file).open("ab") as code:
        code.write(b"\n")
    assert place(root, "tiny", checkpoint, (), root) != before


def test_export_reaches_no_other_code() -> None:
    """`make check` holds the contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (contract["layers"] for contract in contracts if "training" in contract.get("layers", []))
    (own,) = (place for place, layer in enumerate(layers) if "export" in layer.split(" | "))
    assert {"export", *(one for layer in layers[own + 1 :] for one in layer.split(" | "))} == set(CODE)
