"""server.admission.permits: who may enter, and when to come back."""

import pytest

from engine.queueing.cost import Work
from server.admission.permits import FIRST_RETRY_S, MOST_TICKETS, RETRY_S, SURE, TURN_S, WINDOW, Admission
from server.errors import Draining, EngineStopped, Overloaded, WouldBeLate
from server.errors.retry import JITTER


def work(contents: int, caller: str = "") -> Work:
    return Work(contents, 10.0 * contents, 10.0, 1, 64, caller)


class World:
    """A queue, an engine's expectations and a clock that tests set."""

    def __init__(self) -> None:
        self.waiting = 0
        self.idle = False
        self.now = 100.0
        self.finishes_in_s = 0.0
        self.reserved = 0.0
        self.chance = 0.0
        self.waiting_by: dict[str, int] = {}

    def waiting_of(self, caller: str) -> int:
        return self.waiting_by.get(caller, 0)

    def finish_s(self, work: Work, reserved: float) -> float:
        self.reserved = reserved
        return self.finishes_in_s

    def cost_of(self, work: Work) -> float:
        return 0.1 * work.contents

    def admission(self, max_waiting: int) -> Admission:
        return Admission(max_waiting, self, lambda: self.now, lambda: self.chance)

    def answer(self, admission: Admission, count: int, seconds_each: float) -> None:
        for _ in range(count):
            self.now += seconds_each
            admission.answered()


def refused(admission: Admission, contents: int, caller: str = "") -> Overloaded:
    with pytest.raises(Overloaded) as caught, admission.permit(work(contents, caller)):
        pass
    return caught.value


def test_lets_in_up_to_the_limit_and_refuses_the_next_with_both_numbers() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 3
    with admission.permit(work(1)):
        pass
    error = refused(admission, 2)
    assert error.metadata == {"waiting": "5", "max_waiting": "4"}


def test_one_caller_leaves_an_eighth_of_the_queue_to_others() -> None:
    world = World()
    admission = world.admission(1024)
    world.waiting, world.waiting_by["greedy"] = 768, 768
    with pytest.raises(Overloaded, match="1024 contents of this caller would wait; it may have 896 of 1024") as caught:
        admission.permit(work(256, "greedy")).__enter__()
    assert caught.value.metadata == {"waiting": "1024", "max_waiting": "1024", "share": "896"}
    with admission.permit(work(128, "greedy")), admission.permit(work(128, "modest")):
        pass


def test_where_others_wait_a_share_is_smaller() -> None:
    world = World()
    admission = world.admission(80)
    world.waiting, world.waiting_by = 60, {"one": 40, "other": 20}
    for caller, share in (("one", 52), ("other", 35)):
        with pytest.raises(Overloaded) as caught:
            admission.permit(work(share + 1 - world.waiting_by[caller], caller)).__enter__()
        assert caught.value.metadata["share"] == str(share)
        with admission.permit(work(share - world.waiting_by[caller], caller)):
            pass
    with admission.permit(work(20, "third")):  # what fits, and nothing is left
        pass


def test_what_a_caller_has_that_is_being_made_ready_counts() -> None:
    admission = World().admission(8)
    with admission.permit(work(6, "one")):
        with pytest.raises(Overloaded, match="8 contents of this caller"):
            admission.permit(work(2, "one")).__enter__()
        with admission.permit(work(2, "other")):
            pass
    with admission.permit(work(8, "one")):
        pass


def test_a_call_that_is_larger_than_the_queue_never_fits() -> None:
    assert refused(World().admission(4), 5).metadata == {"waiting": "5", "max_waiting": "4"}


def test_a_call_that_is_being_made_ready_takes_room() -> None:
    admission = World().admission(4)
    with admission.permit(work(3)):
        assert refused(admission, 2).metadata["waiting"] == "5"
        with admission.permit(work(1, "other")):
            refused(admission, 1)


def test_room_is_given_back_when_the_call_is_submitted_or_fails() -> None:
    admission = World().admission(4)
    with pytest.raises(ValueError, match="bad text"), admission.permit(work(4)):
        raise ValueError("bad text")
    with admission.permit(work(4)):
        pass


def test_before_the_first_answers_the_advice_is_a_fixed_one() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 4
    assert refused(admission, 1).retry_after_s == FIRST_RETRY_S


def test_the_advice_is_the_excess_at_the_pace_of_the_last_answers() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 4
    world.answer(admission, WINDOW, 9.0)
    world.answer(admission, WINDOW, 0.1)
    assert refused(admission, 5).retry_after_s == pytest.approx(0.5)


@pytest.mark.parametrize(("seconds_each", "advice"), [(1e-6, RETRY_S[0]), (1e6, RETRY_S[1])])
def test_the_advice_is_never_silly(seconds_each: float, advice: float) -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 4
    world.answer(admission, WINDOW, seconds_each)
    assert refused(admission, 1).retry_after_s == pytest.approx(advice)


def test_a_herd_is_told_to_come_back_one_after_the_other() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 4
    world.answer(admission, WINDOW, 0.1)
    advice = [refused(admission, 2).retry_after_s for _ in range(4)]
    assert advice == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_a_herd_of_many_callers_is_spread_too() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 4
    world.answer(admission, WINDOW, 0.05)
    advice = [refused(admission, 1, caller).retry_after_s for caller in "abcd"]
    assert advice == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_what_one_caller_asks_for_does_not_keep_others_away() -> None:
    world = World()
    admission = world.admission(10**6)
    world.waiting, world.finishes_in_s = 1, 5000.0
    for _ in range(100):
        with pytest.raises(WouldBeLate), admission.permit(work(50_000, "greedy"), world.now + 1.0):
            pass
    world.finishes_in_s = 1.0
    with pytest.raises(WouldBeLate) as caught, admission.permit(work(1, "modest"), world.now + 1.0):
        pass
    assert caught.value.retry_after_s == pytest.approx(1.0 - SURE + TURN_S)
    with pytest.raises(WouldBeLate) as caught, admission.permit(work(1, "greedy"), world.now + 1.0):
        pass
    assert caught.value.retry_after_s == RETRY_S[1]


def test_tickets_of_callers_without_number_are_forgotten() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 4
    for number in range(2 * MOST_TICKETS):
        refused(admission, 1, str(number))
    assert len(admission._own_tickets) <= MOST_TICKETS


def test_no_two_advices_of_a_moment_are_kept_to_at_the_same_time() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting, world.chance = 4, 1.0
    assert refused(admission, 1).retry_after_s == pytest.approx(FIRST_RETRY_S * (1 + JITTER))


def test_answers_from_before_the_queue_was_empty_say_nothing() -> None:
    world = World()
    admission = world.admission(4)
    world.answer(admission, WINDOW, 20.0)  # calls came every 20 s; each took milliseconds
    with admission.permit(work(1)):
        pass
    world.waiting = 4
    world.answer(admission, 10, 0.2)
    assert refused(admission, 1).retry_after_s == pytest.approx(0.2)


def test_what_would_be_late_is_refused_with_both_numbers_and_told_when_there_is_room() -> None:
    world = World()
    admission = world.admission(10)
    world.waiting, world.finishes_in_s = 1, 1.0
    with pytest.raises(WouldBeLate) as caught, admission.permit(work(2), world.now + 1.0):
        pass
    assert caught.value.metadata == {"needed_ms": str(round(1000 / SURE)), "left_ms": "1000"}, "more than is left"
    assert caught.value.retry_after_s == pytest.approx(1.0 - SURE)
    with admission.permit(work(2), world.now + 1.0 / SURE + 0.01):
        pass


def test_calls_that_are_being_made_ready_are_ahead() -> None:
    world = World()
    admission = world.admission(10)
    with admission.permit(work(3)), admission.permit(work(1), world.now + 9.0):
        assert world.reserved == pytest.approx(0.3)


def test_a_server_that_is_idle_tries_whatever_it_expects() -> None:
    world = World()
    admission = world.admission(10)
    world.finishes_in_s = 9.0
    with pytest.raises(WouldBeLate), admission.permit(work(1), world.now + 1.0):
        pass
    world.idle = True
    with admission.permit(work(1), world.now + 1.0):
        pass
    with pytest.raises(WouldBeLate) as caught, admission.permit(work(1), world.now - 0.1):
        pass
    assert caught.value.retry_after_s is None  # and not of one that has no time, however often it comes


def test_once_closed_everybody_is_refused_for_that_reason() -> None:
    admission = World().admission(4)
    admission.close(Draining)
    with pytest.raises(Draining), admission.permit(work(1)):
        pass
    admission.close(EngineStopped)
    with pytest.raises(EngineStopped), admission.permit(work(1)):
        pass
