"""Where only what serves is installed, export and training say how to get what they need."""

import subprocess
import sys

import pytest

from tests.checkpoints import ROOT

WITHOUT = """
import runpy, sys
sys.modules["rich"] = None  # importing it raises ModuleNotFoundError
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("program", ["export", "training"])
def test_what_is_missing_is_named(program: str) -> None:
    command = [sys.executable, "-c", WITHOUT, program, "somewhere"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: rich.console is not installed; ")
    assert done.stderr.endswith("make setup\n")
