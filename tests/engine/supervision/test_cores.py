"""engine.supervision.cores: who computes next."""

import threading
import time
from collections.abc import Callable

import pytest

from engine.supervision.cores import Cores, Seat
from tests.fakes import WAIT_S


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0)


def waits(seat: Seat) -> bool:
    return seat in seat._core.waiting


def shares(steps: dict[str, float], turns: int) -> list[str]:
    """The order in which workers compute that always have something to do, whose steps take so long."""
    cores, order = Cores(), list[str]()
    seats = {name: cores.seat(0) for name in steps}
    ended = threading.Event()

    def work(name: str) -> None:
        seat = seats[name]
        while not ended.is_set():
            seat.take()
            wait_until(lambda: ended.is_set() or all(waits(other) for other in seats.values() if other is not seat))
            order.append(name)
            seat.spent_s += steps[name]
            if len(order) >= turns:
                ended.set()
        seat.give_up()

    for thread in [in_thread(lambda name=name: work(name)) for name in steps]:  # type: ignore[misc]
        thread.join(WAIT_S)
    return order[:turns]


@pytest.mark.parametrize("steps", [{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 10.0}, {"a": 1.0, "b": 3.0, "c": 7.0}])
def test_each_gets_as_much_time_whatever_a_step_takes(steps: dict[str, float]) -> None:
    spent = dict.fromkeys(steps, 0.0)
    for name in shares(steps, 60):
        spent[name] += steps[name]
        assert max(spent.values()) - min(spent.values()) <= max(steps.values())
    assert min(spent.values()) > 0


def test_who_is_alone_waits_for_nobody_and_keeps_its_core() -> None:
    cores = Cores()
    seat, other = cores.seat(0), cores.seat(1)
    for _ in range(3):
        seat.take()
        other.take()
        seat.spent_s += 1.0
        assert (seat.rivals, other.rivals) == (0, 0)
    assert seat._core.holder is seat and other._core.holder is other


def test_who_was_idle_has_saved_nothing_up() -> None:
    cores = Cores()
    busy, idle = cores.seat(0), cores.seat(0)
    busy.take()
    busy.spent_s += 100.0
    busy.leave()
    idle.take()
    assert idle.spent_s == 100.0
    thread = in_thread(busy.take)
    wait_until(lambda: waits(busy))
    assert (busy.rivals, idle.rivals) == (1, 1)
    idle.spent_s += 1.0
    idle_again = in_thread(idle.take)
    thread.join(WAIT_S)
    assert busy._core.holder is busy
    busy.leave()
    idle_again.join(WAIT_S)
    assert idle._core.holder is idle


def test_a_core_is_taken_from_who_is_given_up() -> None:
    cores = Cores()
    hangs, waiting, next_life = cores.seat(0), cores.seat(0), cores.seat(0)
    hangs.take()
    threads = [in_thread(seat.take) for seat in (waiting, next_life)]
    wait_until(lambda: waits(waiting) and waits(next_life))
    hangs.give_up()
    wait_until(lambda: waiting._core.holder in (waiting, next_life))
    waiting.give_up()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert waiting._core.holder is next_life
    hangs.leave()  # it comes back, and holds nothing
    hangs.take()
    assert waiting._core.holder is next_life
