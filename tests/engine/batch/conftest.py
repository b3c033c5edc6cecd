"""One step in a turn: how many nobody need see depends on the clock, and most tests here count steps."""

import pytest


@pytest.fixture(autouse=True)
def one_step_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.batch.running_batch.TOGETHER_S", 0.0)
