"""Completion, by a real bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman.command.main import main

COMPLETED = """
source "$0"
COMP_WORDS=(dragoman "$@"); COMP_CWORD=$#
"$(complete -p dragoman | sed 's/.*-F \\([^ ]*\\).*/\\1/')" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    ran = subprocess.run(["bash", "-c", COMPLETED, script, *words], capture_output=True, text=True, timeout=60)
    return set(ran.stdout.split())


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_bash_completes_commands_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "dragoman.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    assert completed(script, "transl") == {"translate"}
    assert completed(script, "translate", "--num-b") >= {"--num-beams"}
    assert completed(script, "completion", "b") == {"bash"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_others_know_the_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "--num-beams" in (told := capsys.readouterr().out) or "num-beams" in told


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["completion", "csh"])
    assert left.value.code == 2 and "bash" in capsys.readouterr().err
