"""A run of bulk that is killed, by somebody who writes files in its place."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import bulk
from dragoman.bulk.journal import Journal
from dragoman.bulk.windows import ROWS

SENTENCES = 40


class Runs:
    """Every third ends before its moment; what they come to is `made`."""

    def __init__(self, made: bytes) -> None:
        self.moments, self._made = list[float](), made

    def whole(self, *arguments: object) -> None:
        """A run that nobody kills. arguments: of the command."""
        target = Path(str(arguments[2]))
        target.write_bytes(self._made if target.name == "killed.txt" else b"as it is to be")

    def killed_at(self, moment: float, command: list[str], journal: Path, _: int, __: float) -> bool:
        self.moments.append(moment)
        if len(self.moments) % 3 == 0:
            for file in journal.parent.iterdir():
                file.unlink()
            journal.parent.rmdir()
            self.whole("bulk", *command[4:])
            return False
        journal.parent.mkdir(exist_ok=True)
        Journal(journal).close()
        return True


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Runs]:
    def made(content: bytes) -> Runs:
        runs = Runs(content)
        monkeypatch.setattr(bulk, "killed_at", runs.killed_at)
        monkeypatch.setattr(bulk, "dragoman", runs.whole)
        return runs

    return made


def test_a_run_that_ended_is_begun_anew_until_all_kills_happened(
    killed: Callable[[bytes], Runs], tmp_path: Path
) -> None:
    runs = killed(b"as it is to be")
    told, right = bulk.kill(Path("package"), SENTENCES, 8, tmp_path)
    assert right
    ended = len(runs.moments) // 3
    assert len(runs.moments) == bulk.KILLS + ended
    assert told.startswith(f"killed {bulk.KILLS} times, with 0, 0, ")
    assert told.endswith(f" rows of {SENTENCES} kept, and ended {ended + 1} times: equal to a whole run's")


@pytest.mark.parametrize(("made", "code"), [(b"as it is to be", 0), (b"something else", 1)])
def test_the_exit_code_says_whether_it_is_wrong(
    made: bytes,
    code: int,
    killed: Callable[[bytes], Runs],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed(made)
    monkeypatch.setattr(
        sys,
        "argv",
        ["bulk", str(bulk.ZOO / "en-pt-int8"), "--part", "killed", "--sentences", str(SENTENCES), "--window", "8"],
    )
    assert bulk.main() == code
    assert ("WRONG" in capsys.readouterr().out) == bool(code)


def test_a_window_that_a_kill_leaves_nothing_of_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bulk", "--part", "killed", "--sentences", str(SENTENCES)])
    with pytest.raises(SystemExit) as ended:
        bulk.main()
    assert ended.value.code == 2
    told = f"--window is {ROWS} and --sentences {SENTENCES}: a run that is killed would keep nothing; give a"
    assert told in capsys.readouterr().err
