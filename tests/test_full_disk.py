"""A disk that has no room for what a program says, which is told in one line. /dev/full is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import ROOT

FULL = Path("/dev/full")

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("export", 2),
        ("training", 2),
        ("training.corpus", 2),
        ("training.corpus.check", 2),
        ("training.corpus.choose", 2),
        ("training.distill", 2),
        ("training.encoders", 2),
        ("inspection", 2),
        ("server.identity", 1),
        ("bench", 1),
    ],
)
def test_help_that_has_no_room_is_told(program: str, code: int, unbuffered: str) -> None:
    with FULL.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", program, "--help"],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (code, f"python -m {program}: input or output: No space left on device\n")
