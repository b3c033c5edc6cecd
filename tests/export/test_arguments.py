"""The command line of export: what it answers before anything that takes long is imported."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from export.__main__ import main
from export.sources import fetch
from tests.checkpoints import ROOT

SLOW = ("torch", "transformers", "onnxruntime", "onnx_ir", "rich", "pydantic", "huggingface_hub", "numpy")
WITHOUT = f"""
import sys
from export.__main__ import main
try:
    main(sys.argv[1:])
finally:
    loaded = [name for name in {SLOW} if name in sys.modules]
    print("loaded", loaded)
"""

Capture = pytest.CaptureFixture[str]


def answer(capsys: Capture, *arguments: str) -> tuple[object, str]:
    """Status and what is shown of arguments that are answered at once."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    shown = capsys.readouterr()
    return end.value.code, shown.out + shown.err


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--version", 0), ("--precison", 2)])
def test_an_answer_imports_nothing_that_takes_long(argument: str, status: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT, argument], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == status
    assert "loaded []" in run.stdout


SLIPS = {
    "a flag": (["x", "--precison", "fp16"], "there is no option --precison; did you mean --precision?"),
    "a flag before the checkpoint": (["--nme=a", "x"], "there is no option --nme; did you mean --name?"),
    "a shortened flag": (["x", "--prec", "fp16"], "there is no option --prec; did you mean --precision?"),
    "no flag at all": (["x", "--frobnicate"], "there is no option --frobnicate"),
    "a value": (
        ["x", "--precision", "fp12"],
        "argument --precision: invalid choice: 'fp12' (choose from 'fp32', 'fp16', 'bf16', 'int16', 'int8')",
    ),
    "no number": (["x", "--verify-samples", "many"], "argument --verify-samples: invalid int value: 'many'"),
    "in place of what is fetched": (["hf:a/b", "--in-place"], "--in-place makes a folder of yours a package"),
    "in place of other weights": (["x", "--in-place", "--precision=fp16"], "--in-place keeps the checkpoint's weights"),
    "the size of no list": (["x", "--shortlist-first", "9"], "--shortlist-first belongs to --shortlist, of whose text"),
    "the length of no list": (["x", "--shortlist-best", "9"], "--shortlist-best belongs to --shortlist, of whose text"),
    "a place that is empty": (["x", "--out", ""], "argument --out: is empty; leave it out"),
    "samples of no name": (["x", "--samples="], "argument --samples: is empty; leave it out"),
    "no checkpoint": ([], "the following arguments are required: checkpoint"),
}


@pytest.mark.parametrize(("arguments", "said"), SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_is_one_line(capsys: Capture, arguments: list[str], said: str) -> None:
    status, shown = answer(capsys, *arguments)
    assert status == 2
    assert shown.startswith(f"error: {said}")
    assert shown.endswith(" (options: python -m export --help)\n")
    assert shown.count("\n") == 1


def test_the_version(capsys: Capture) -> None:
    assert answer(capsys, "--version") == (0, f"Dragoman {version('dragoman')}\n")


def test_it_is_called_what_its_caller_calls_it(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dragoman export"])
    assert answer(capsys, "--help")[1].startswith("usage: dragoman export ")
    assert "(options: dragoman export --help)" in answer(capsys, "--precison")[1]


NO_FOLDERS = {
    "Helsinki-NLP/opus-mt-en-de": "; a model of the Hugging Face Hub is written hf:Helsinki-NLP/opus-mt-en-de",
    "https://huggingface.co/Helsinki-NLP/opus-mt-en-de": "; a model of the Hugging Face Hub is written hf:Helsinki-",
    "en-de": "; a model of Firefox is written firefox:en-de",
    "modls": "; expected a checkpoint folder, hf:OWNER/NAME or firefox:PAIR",
    "hg:a/b": "; expected a checkpoint folder, hf:OWNER/NAME or firefox:PAIR",
}


@pytest.mark.parametrize(("checkpoint", "said"), NO_FOLDERS.items())
def test_what_is_no_folder_may_be_meant_as_a_name(capsys: Capture, checkpoint: str, said: str) -> None:
    assert main([checkpoint]) == 2
    assert f"error: {checkpoint} is not a folder{said}" in capsys.readouterr().err


def test_a_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hf:model").mkdir()
    assert fetch("./hf:model", "", print).name == "hf:model"


def test_a_name_with_colons_is_told_as_it_is(capsys: Capture) -> None:
    assert main(["nowhere/:x:"]) == 2
    assert capsys.readouterr().err.startswith("error: nowhere/:x: ")


def test_a_pipe_in_a_checkpoint_is_not_waited_for(tmp_path: Path, capsys: Capture) -> None:
    os.mkfifo(tmp_path / "config.json")
    assert main([str(tmp_path)]) == 2
    told = f"error: {tmp_path / 'config.json'} is neither a file nor a folder; take it out of the checkpoint"
    assert told in " ".join(capsys.readouterr().err.split())


def test_an_empty_name_is_not_the_checkpoints_own(tiny_checkpoint: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main([str(tiny_checkpoint), "--out", str(tmp_path / "package"), "--name", ""]) == 2
    assert "'' cannot be the model's name; give one of letters" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
