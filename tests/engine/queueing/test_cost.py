"""engine.queueing.cost: what is expected of steps and answers follows what is measured."""

import pytest

from engine.queueing.cost import CostModel, Measured, Work
from engine.request import Encode, Translate
from models.decoding import Decoding
from tests.engine.calling import RULES

MEASURED = Measured(fixed=0.002, each=0.0001, token=0.00005)


def model() -> CostModel:
    """Of one worker of 20 rows."""
    return CostModel(1, 20, MEASURED)


def translate(tokens: int, beams: int = 1) -> Translate:
    decoding = Decoding(num_beams=beams, max_new_tokens=512)
    return Translate((1,) * tokens, lambda event: None, decoding=decoding, rules=RULES)


def test_steps_become_as_slow_as_they_are_measured_whatever_their_rows() -> None:
    cost = model()
    for rows in (1, 20, 7) * 300:
        cost.workers[0].step(rows, 3 * (MEASURED.fixed + MEASURED.each * rows))
    assert cost.workers[0].step_s(10) == pytest.approx(3 * 0.003)


def test_the_encoder_becomes_as_slow_as_it_is_measured() -> None:
    cost = model()
    for _ in range(900):
        cost.workers[0].encoded(50, 50 * 4 * MEASURED.token)
    assert cost.of(Encode((1,) * 10, lambda event: None)) == pytest.approx(40 * MEASURED.token)


def test_answers_become_as_long_as_they_are() -> None:
    cost = model()
    for _ in range(300):
        cost.workers[0].answered(translate(10), 30)
    turn = 0.0021 + MEASURED.token / 3  # a step, and the encoder's part for who comes when this one ends
    assert cost.service_s(Work(1, 10, 10, 1, 512), 1) == pytest.approx(31 * turn + 10 * MEASURED.token, rel=0.01)
    assert cost.service_s(Work(1, 10, 10, 1, 8), 1) == pytest.approx(8 * turn + 10 * MEASURED.token, rel=0.01)


def test_a_beam_costs_its_rows_and_a_call_its_contents() -> None:
    cost = model()
    one, wide = cost.of(translate(10)), cost.of(translate(10, beams=4))
    encoder = 10 * MEASURED.token
    assert wide - encoder == pytest.approx(4 * (one - encoder))
    assert cost.of_work(Work(6, 60, 10, 4, 512)) == pytest.approx(6 * wide)


def test_what_was_computed_is_what_was_spent() -> None:
    assert model().spent(10, 40) == pytest.approx(10 * MEASURED.token + 40 * 0.004 / 20)


@pytest.mark.parametrize("rows", [1, 7.5, 20])
def test_the_most_rows_are_those_in_which_a_request_takes_so_long(rows: float) -> None:
    cost = model()
    cost.workers[0].step(4, 0.01)
    cost.workers[0].encoded(50, 0.02)
    seconds = cost.service_s(Work(1, 10, 10, 1, 512), rows)
    assert cost.most_rows(0, translate(10), seconds) == pytest.approx(rows)
    assert cost.most_rows(0, Encode((1,) * 10, lambda event: None), seconds) == float("inf")


def test_work_takes_longer_in_smaller_batches() -> None:
    cost = model()
    assert cost.slowdown(20) == pytest.approx(1)
    assert cost.slowdown(1) == cost.slowdown(0.2) == pytest.approx((0.0021 + 0.00004) / (0.004 + 0.0008) * 20)
