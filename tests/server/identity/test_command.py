"""`python -m server.identity`: a token in a file, and the lines that let it in."""

import subprocess
import sys
from pathlib import Path

import pytest

from server.identity.__main__ import PROG, main
from server.identity.callers import read_callers
from tests.checkpoints import ROOT


def refused(file: Path, why: str) -> str:
    """What is said of a file of a token that cannot be made, and the way out."""
    return f"{PROG}: {file} cannot be made: {why}; give --token-file another place\n"


def test_its_lines_let_its_token_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    assert main(['a"b\\c', "--token-file", str(file), "--scope", "encode", "--scope", "admin"]) == 0
    printed, token = capsys.readouterr().out, file.read_text().strip()
    assert token not in printed
    assert file.stat().st_mode & 0o777 == 0o600
    (tmp_path / "callers.toml").write_text(printed)
    identity = read_callers(tmp_path / "callers.toml").by_token(token)
    assert identity is not None
    assert (identity.name, sorted(identity.scopes)) == ('a"b\\c', ["admin", "encode"])


def test_no_file_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text("somebody's")
    assert main(["a", "--token-file", str(file)]) == 1
    assert (capsys.readouterr().err, file.read_text()) == (refused(file, "File exists"), "somebody's")


def test_no_part_of_a_token_is_left(tmp_path: Path) -> None:
    """In a process of its own, no file of which may be longer than a byte."""
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1));"
        "from server.identity.__main__ import main; sys.exit(main(['a', '--token-file', sys.argv[1]]))"
    )
    file = tmp_path / "token"
    done = subprocess.run(
        [sys.executable, "-c", limited, str(file)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, refused(file, "File too large"))
    assert not file.exists()


def test_a_name_must_fit_into_a_line_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a b", "--token-file", str(tmp_path / "token")]) == 2
    assert capsys.readouterr().err.startswith(f"{PROG}: 'a b' is no name; one has 1 to 256 ")
    assert not list(tmp_path.iterdir())
