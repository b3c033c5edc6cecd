"""How fast a run says that it is."""

from types import SimpleNamespace

import pytest

from training.loop import progress


def test_a_rate_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    rate, shown = progress.Rate(), []
    for second in range(10, 130, 10):
        clock.now = float(second)
        rate.add(30 if second <= 60 else 0)
        if second == 20:
            rate.add(70)  # a burst
        shown.append(rate.read())
    assert shown[:6] == [3, 130 / 20, 160 / 30, 190 / 40, 220 / 50, 250 / 60]
    assert shown[6:] == [220 / 60, 120 / 60, 90 / 60, 60 / 60, 30 / 60, 0]
