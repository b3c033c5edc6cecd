"""training: what its command line answers before anything heavy is imported, and where that is interrupted."""

import subprocess
import sys

import pytest

from dragoman import __version__
from tests.checkpoints import ROOT

ASK = """
import atexit, runpy, sys
atexit.register(lambda: print("torch" in sys.modules, file=sys.stderr))
sys.argv = ["training", sys.argv[1]]
runpy.run_module("training", run_name="__main__")
"""


PRESS = """
import runpy, sys
class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == "torch":
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
module, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_module(module, run_name="__main__")
"""


@pytest.mark.parametrize(("argument", "code", "said"), [("--help", 0, "TOML file"), ("--version", 0, __version__)])
def test_questions_are_answered_without_torch(argument: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, argument], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr.split()[-1]) == (code, "False")
    assert said in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "training experiment.toml",
        "training.encoders experiment.toml",
        "training.distill package --source mono.en --out mono",
        "training.corpus corpus",
        "training.corpus.check corpus",
        "training.corpus.choose corpus text",
    ],
)
def test_ctrl_c_while_torch_is_imported(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRESS, *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
