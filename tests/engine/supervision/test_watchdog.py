"""engine.supervision.watchdog: what hangs, by a clock of our own."""

from typing import Any, cast

from engine.supervision.policy import Supervision
from engine.supervision.watchdog import Watchdog


class Turning:
    """A worker, as far as it is watched."""

    def __init__(self, turns: int = 1, expected_s: float = 0.01, in_turn: bool = True) -> None:
        self.turns, self.expected_s, self.in_turn = turns, expected_s, in_turn


def looks(worker: Turning, seconds: int) -> int | None:
    """The second after which it has hung, if it has."""
    watchdog = Watchdog(Supervision(restarts=1))
    for second in range(seconds + 1):
        if watchdog.hung([cast("Any", worker)], 1.0):
            return second
    return None


def test_a_turn_hangs_after_ten_seconds_and_ten_times_what_is_expected() -> None:
    assert looks(Turning(expected_s=0.01), 100) == 11
    assert looks(Turning(expected_s=5.0), 100) == 51


def test_the_first_turn_may_take_longer() -> None:
    assert looks(Turning(turns=0, expected_s=0.0), 1000) == 121


def test_the_first_turn_of_another_worker_and_of_one_that_begins_anew_may_not() -> None:
    watchdog, workers = Watchdog(Supervision()), [Turning(in_turn=False), Turning(turns=0, expected_s=0.0)]
    for second in range(100):
        if hung := watchdog.hung(cast("Any", workers), 1.0):
            assert (second, cast("Any", hung[0][0])) == (11, workers[1])
            break
        workers[0].turns += 1
    else:
        raise AssertionError("it was not noticed")
    anew = cast("Any", Turning(turns=0, expected_s=0.0))
    assert any(watchdog.hung([anew], 1.0) for _ in range(13))


def test_who_waits_has_not_hung_and_who_turns_has_not_either() -> None:
    assert looks(Turning(in_turn=False), 1000) is None
    watchdog, worker = Watchdog(Supervision(restarts=1)), Turning()
    for _ in range(1000):
        assert not watchdog.hung([cast("Any", worker)], 1.0)
        worker.turns += 1
