"""The commands of other packages: found where they are installed, and missed in clear words where they are not."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SITE_PACKAGES = Path(pytest.__file__).parents[1]
ENTRY_POINTS = """[dragoman.commands]
serve = server.__main__:main
greet = greeting:main
lost = no_such_package:main
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Where the client is installed, and a package that adds a command."""
    root = tmp_path / "installed"
    shutil.copytree(ROOT / "dragoman", root / "dragoman")
    (root / "greeting.py").write_text("def main(arguments):\n    print(arguments)\n    return 7\n")
    information = root / "greeting-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    return root


def dragoman(folder: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    """The command of this folder. Without `site` the checkout is not on the path."""
    path = os.pathsep.join(map(str, (folder, SITE_PACKAGES)))
    command = [sys.executable, "-S", "-m", "dragoman", *argv]
    environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_a_command_of_another_package_is_run_with_its_arguments(installed: Path) -> None:
    result = dragoman(installed, "greet", "--loud", "you")
    assert (result.returncode, result.stdout, result.stderr) == (7, "['--loud', 'you']\n", "")


@pytest.mark.parametrize("name", ["serve", "export", "train", "inspect"])
def test_without_a_checkout_the_way_to_one_is_told(installed: Path, name: str) -> None:
    result = dragoman(installed, name)
    assert (result.returncode, result.stdout) == (2, "")
    assert "is not installed here; in a checkout: make " in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_strangers_server_is_not_ours(installed: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger" / "server"
    stranger.mkdir(parents=True)
    (stranger / "__init__.py").touch()
    (stranger / "__main__.py").write_text("def main():\n    print('mine')\n")
    path = os.pathsep.join(map(str, (installed, stranger.parent, SITE_PACKAGES)))
    result = subprocess.run(
        [sys.executable, "-S", "-m", "dragoman", "serve"],
        env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "the server is not installed here" in result.stderr


def test_help_shows_only_what_is_there(installed: Path) -> None:
    shown = dragoman(installed, "--help").stdout
    assert "\n  greet" in shown
    assert "\n  serve" not in shown
    assert "lost" not in shown


def test_beside_the_server_the_server_is_there(installed: Path) -> None:
    (installed / "server").mkdir()
    (installed / "server" / "__init__.py").touch()
    (installed / "server" / "__main__.py").write_text(
        "def main(arguments):\n    print('serving', arguments)\n    return 0\n"
    )
    assert dragoman(installed, "serve", "--port", "1").stdout == "serving ['--port', '1']\n"
    assert "\n  serve       serve a package" in dragoman(installed, "--help").stdout


def test_the_project_declares_what_it_brings() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = project.partition('[project.entry-points."dragoman.commands"]\n')[2].partition("\n\n")[0]
    declared = dict(line.split(" = ") for line in table.splitlines())
    assert declared == {
        "serve": '"server.__main__:main"',
        "export": '"export.__main__:main"',
        "train": '"training.__main__:main"',
        "inspect": '"inspection.__main__:main"',
        "pull": '"export.command.pull:main"',
        "show": '"export.command.show:main"',
        "rm": '"export.command.remove:main"',
    }
    assert {point.name for point in entry_points(group="dragoman.commands")} <= declared.keys()


@pytest.mark.parametrize("module", ["server", "export", "training", "inspection"])
def test_the_programs_take_their_arguments(module: str) -> None:
    """As `dragoman serve`, `dragoman export` and others give them."""
    code = f"import sys; from {module}.__main__ import main; sys.exit(main(['--help']))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"python -m {module} " in result.stdout
