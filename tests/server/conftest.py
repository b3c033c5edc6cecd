"""What several modules want of a server that ends."""

import pytest

from tests.fakes import WAIT_S


@pytest.fixture
def answers_get_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr("server.lifecycle.FLUSH_S", WAIT_S)
