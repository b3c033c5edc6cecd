"""The command line in this process."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.command.main import main
from tests.client.fake_server import FakeServer

TIMINGS = {
    "queue_s": 0.001,
    "encode_s": 0.002,
    "decode_s": 0.03,
    "total_s": 0.033,
    "steps": 3,
    "tokenize_s": 0.0001,
    "detokenize_s": 0.0002,
    "mean_batch_rows": 2.5,
}
"""Of the fake server, as --json has them."""


@dataclass
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Dragoman:
    """The command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> None:
        self.server = server
        self._capsys = capsys
        monkeypatch.setenv("DRAGOMAN_TARGET", server.target)

    def __call__(self, *argv: str | Path) -> Result:
        try:
            code = main([str(argument) for argument in argv])
        except SystemExit as usage:
            assert isinstance(usage.code, int)
            code = usage.code
        return Result(code, *self._capsys.readouterr())


class Terminal(io.StringIO):
    """A standard stream that is a terminal."""

    def isatty(self) -> bool:
        return True
