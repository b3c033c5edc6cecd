"""The command line, and a file of texts."""

from pathlib import Path

import pytest

from tests.client.command.command_line import Dragoman
from tests.client.fake_server import FakeServer


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> Dragoman:
    return Dragoman(capsys, monkeypatch, server)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "texts"
