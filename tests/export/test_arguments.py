"""The command line of export: what it answers before anything that takes long is imported."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from export.__main__ import main
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


def answer(capsys: Capture, *arguments: str, program: str = "python -m export") -> tuple[object, str]:
    """Status and what is shown of arguments that are answered at once."""
    with pytest.raises(SystemExit) as end:
        main(arguments, program)
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
        "argument --precision: invalid choice: 'fp12' (choose from 'fp32', 'fp16', 'bf16')",
    ),
    "no number": (["x", "--verify-samples", "many"], "argument --verify-samples: invalid int value: 'many'"),
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


def test_the_program_is_called_what_its_caller_calls_it(capsys: Capture) -> None:
    assert answer(capsys, "--help", program="dragoman export")[1].startswith("usage: dragoman export ")
    assert "(options: dragoman export --help)" in answer(capsys, "--precison", program="dragoman export")[1]
