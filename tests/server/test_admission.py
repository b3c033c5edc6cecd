"""server.admission.permits: who may enter, and when to come back."""

import pytest

from server.admission.permits import FIRST_RETRY_S, RETRY_S, WINDOW, Admission
from server.errors import Draining, EngineStopped, Overloaded


class World:
    """A queue and a clock that tests set."""

    def __init__(self) -> None:
        self.waiting = 0
        self.now = 100.0

    def admission(self, max_waiting: int) -> Admission:
        return Admission(max_waiting, lambda: self.waiting, lambda: self.now)

    def answer(self, admission: Admission, count: int, seconds_each: float) -> None:
        for _ in range(count):
            self.now += seconds_each
            admission.answered()


def refused(admission: Admission, contents: int) -> Overloaded:
    with pytest.raises(Overloaded) as caught, admission.permit(contents):
        pass
    return caught.value


def test_lets_in_up_to_the_limit_and_refuses_the_next_with_both_numbers() -> None:
    world = World()
    admission = world.admission(4)
    world.waiting = 3
    with admission.permit(1):
        pass
    error = refused(admission, 2)
    assert error.metadata == {"waiting": "5", "max_waiting": "4"}


def test_a_call_that_is_being_made_ready_takes_room() -> None:
    admission = World().admission(4)
    with admission.permit(3):
        assert refused(admission, 2).metadata["waiting"] == "5"
        with admission.permit(1):
            refused(admission, 1)


def test_room_is_given_back_when_the_call_is_submitted_or_fails() -> None:
    admission = World().admission(4)
    with pytest.raises(ValueError, match="bad text"), admission.permit(4):
        raise ValueError("bad text")
    with admission.permit(4):
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
    assert refused(admission, 1).retry_after_s == advice


def test_answers_from_before_the_queue_was_empty_say_nothing() -> None:
    world = World()
    admission = world.admission(4)
    world.answer(admission, WINDOW, 20.0)  # calls came every 20 s; each took milliseconds
    with admission.permit(1):
        pass
    world.waiting = 4
    world.answer(admission, 10, 0.2)
    assert refused(admission, 1).retry_after_s == pytest.approx(0.2)


def test_once_closed_everybody_is_refused_for_that_reason() -> None:
    admission = World().admission(4)
    admission.close(Draining)
    with pytest.raises(Draining), admission.permit(1):
        pass
    admission.close(EngineStopped)
    with pytest.raises(EngineStopped), admission.permit(1):
        pass
