"""`python -m server.identity`: a token in a file, and the lines that let it in."""

from pathlib import Path

import pytest

from server.identity.__main__ import main
from server.identity.callers import read_callers


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
    assert (capsys.readouterr().err, file.read_text()) == (f"{file}: File exists\n", "somebody's")


def test_a_name_must_fit_into_a_line_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a b", "--token-file", str(tmp_path / "token")]) == 2
    assert "'a b' is no name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
