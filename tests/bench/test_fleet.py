"""bench.fleet: what queueing theory knows, and what routing, reports and zones must do."""

import numpy as np
import pytest

from bench.fleet.simulation import Fleet, Found, Lengths, capacity, poisson, simulate, texts_of
from engine.queueing.cost import Measured

LENGTHS = Lengths([5, 10, 20, 60], [6, 12, 24, 70])
MEASURED = Measured(fixed=0.002, each=0.0004, token=0.0001)


def mean_s(found: Found) -> float:
    return float(found.seconds.mean())


def test_one_row_is_the_queue_of_pollaczek_and_khinchine() -> None:
    fleet, rate = Fleet(1, Measured(0.001, 0.0, 0.0), workers=1, rows=1), 60.0
    texts = texts_of(fleet, Lengths([1, 1], [5, 15]), poisson(rate, 60_000, 1))
    services = np.array([0.001 * text.steps for text in texts])
    waiting_s = rate * (services**2).mean() / 2 / (1 - rate * services.mean())
    assert mean_s(simulate(fleet, texts)) == pytest.approx(services.mean() + waiting_s, rel=0.05)


def test_steps_that_cost_what_their_rows_do_share_a_processor() -> None:
    """M/G/1-PS: the mean depends on no more of the lengths than their mean (Kleinrock 1976, section 4.4)."""
    fleet, rate = Fleet(1, Measured(0.0, 0.001, 0.0), workers=1, rows=10**6), 60.0
    texts = texts_of(fleet, Lengths([1] * 4, [2, 2, 2, 26]), poisson(rate, 60_000, 2))
    service_s = float(np.mean([0.001 * text.steps for text in texts]))
    assert mean_s(simulate(fleet, texts)) == pytest.approx(service_s / (1 - rate * service_s), rel=0.05)


def test_better_routing_has_the_shorter_tail_and_old_reports_undo_it() -> None:
    most = 8 * capacity(Fleet(1, MEASURED, rows=8), LENGTHS)

    def p99(routing: str, report_s: float = 0.0) -> float:
        fleet = Fleet(8, MEASURED, rows=8, routing=routing, report_s=report_s)
        return simulate(fleet, texts_of(fleet, LENGTHS, poisson(0.8 * most, 8000, 3))).quantile(0.99)

    assert p99("least requests") < p99("power of two") < p99("round robin")
    assert p99("least requests", 2.0) > 2 * p99("power of two", 2.0)


def test_a_lost_zone_loses_no_text() -> None:
    fleet = Fleet(6, MEASURED, zone_loss=True)
    texts = texts_of(fleet, LENGTHS, poisson(3 * capacity(fleet, LENGTHS), 4000, 4))
    found = simulate(fleet, texts)
    assert np.isfinite(found.seconds).all() and all(text.answered > text.arrived for text in texts)
    again = simulate(fleet, texts_of(fleet, LENGTHS, [text.arrived for text in texts]))
    assert (again.seconds == found.seconds).all()  # nothing is left to chance but the seed
