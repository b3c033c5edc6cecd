"""What a server that is asked for too much still answers in time."""

import pytest

from tests.simulation.goodput import FAST, SLOW, Machine, goodput


@pytest.mark.parametrize("machine", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize(("load", "least"), [(1.5, 0.9), (2.5, 0.9), (10.0, 0.85)])
def test_most_of_the_capacity_is_answers_in_time_however_much_is_asked(
    machine: Machine, load: float, least: float
) -> None:
    told = goodput(machine, seed=0, load=load, seconds=4.0)
    assert told.share > least - 0.05  # a short run begins and ends with less
    assert told.lost_rows < 0.02
