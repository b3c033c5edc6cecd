"""dragoman.calls.attempts: what each attempt of a call is given."""

from typing import Any

import pytest

from dragoman.calls.attempts import Attempts, Calls
from tests.client.calls.test_retries import Failed


@pytest.mark.parametrize("wait_for_ready", [True, False])
def test_deadlines_shrink_by_what_attempts_and_waits_took(
    monkeypatch: pytest.MonkeyPatch, wait_for_ready: bool
) -> None:
    """Each is given what is left, and none is begun for which nothing would be."""
    now_s, given = 1000.0, list[tuple[float, float]]()
    monkeypatch.setattr("dragoman.calls.attempts.time.monotonic", lambda: now_s)

    def start(methods: str, timeout_s: float, waits: bool) -> Any:
        given.append((now_s, timeout_s))

    calls = Calls(["only"], start, wait_for_ready)
    attempts = Attempts(calls, timeout_s=10.0)
    delay_s: float | None = 0.0
    while delay_s is not None:
        now_s += delay_s
        server, _ = attempts.begin(start)
        now_s += 0.7
        error = Failed(pushback="400")
        attempts.failed(server, error)
        delay_s = attempts.delay_s(error)
    assert len(given) > 5
    assert [left_s for _, left_s in given] == [pytest.approx(1010.0 - began_s) for began_s, _ in given]
    assert given[-1][1] > 0
    assert now_s + 0.48 > 1010.0, "there was time for another"
