"""The pages of the command line and of the Python client are true."""

from pathlib import Path

import pytest

from dragoman.command.commands import OWN
from dragoman.command.flags.declared import parser
from dragoman.wire.messages import OPTIONS
from tests.client.fake_server import FakeServer

ROOT = Path(__file__).parents[3]


def flags() -> set[str]:
    return {flag for command in OWN for action in parser(command)._actions for flag in action.option_strings}


def test_every_flag_is_documented() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    options = {f"--{'no-' * no}{name.replace('_', '-')}" for name in OPTIONS for no in (False, True)}
    assert "--num-beams" in flags() & options
    assert [flag for flag in sorted(flags() - {"-h", "--help"} - options) if f"`{flag}" not in page] == []


def test_every_option_of_decoding_is_documented() -> None:
    page = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
    assert [name for name in OPTIONS if f"\n| `{name}` |" not in page] == []


def python_examples() -> list[str]:
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    return [block.split("```")[0] for block in page.split("```python\n")[1:]]


@pytest.mark.parametrize("number", range(len(python_examples())))
def test_every_python_example_runs(server: FakeServer, capsys: pytest.CaptureFixture[str], number: int) -> None:
    code = python_examples()[number]
    here = "dragoman.local" in code
    assert ("127.0.0.1:8500" in code) is not here
    exec(compile(code.replace("127.0.0.1:8500", server.target), f"example {number}", "exec"), {})
    assert capsys.readouterr().out
    assert bool(server.requests) is not here
