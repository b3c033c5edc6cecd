"""server.admission.quotas: most that a caller may ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from server.admission.accounts import SWEEP_FROM
from server.admission.quotas import BURST_S, CALL_RETRY_S, Quota, Quotas
from server.errors import QuotaExceeded
from server.errors.retry import JITTER
from server.telemetry.metrics.caller import MOST_CALLERS, CallerMetrics


class World:
    """A clock and a chance that tests set."""

    def __init__(self, quota: Quota) -> None:
        self.now, self.chance, self.registry = 100.0, 0.0, CollectorRegistry()
        self.metrics = CallerMetrics(self.registry)
        self.quotas = Quotas(quota, self.metrics, lambda: self.now, lambda: self.chance)

    def ask(self, caller: str, texts: int, cost: float = 0.0) -> None:
        self.quotas.check(caller, texts, cost)
        self.quotas.take(caller, texts, cost)

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"dragoman_caller_{name}", labels) or 0.0


def refused(world: World, caller: str, texts: int, cost: float = 0.0) -> QuotaExceeded:
    with pytest.raises(QuotaExceeded) as caught:
        world.ask(caller, texts, cost)
    return caught.value


def test_a_second_s_worth_may_come_at_once_and_the_next_is_told_when_to_come() -> None:
    world = World(Quota(texts_per_s=10.0))
    world.ask("a", 10)
    error = refused(world, "a", 4)
    assert error.message == '"a" asks for 4, and 0 are left of its texts_per_s, which are 10: retry in 400 ms'
    assert error.metadata == {"caller": "a", "quota": "texts_per_s", "asked": "4", "left": "0", "limit": "10"}
    assert error.retry_after_s == pytest.approx(0.4)
    world.ask("b", 10)  # another caller's are another's
    world.now += 0.4001
    world.ask("a", 4)


def test_advice_has_jitter() -> None:
    world = World(Quota(texts_per_s=10.0))
    world.ask("a", 10)
    world.chance = 1.0
    assert refused(world, "a", 4).retry_after_s == pytest.approx(0.4 * (1 + JITTER))


def test_a_call_that_is_larger_than_a_second_s_worth_is_owed_for() -> None:
    world = World(Quota(texts_per_s=10.0))
    world.ask("a", 35)
    assert refused(world, "a", 1).retry_after_s == pytest.approx(2.6)
    world.now += 2.6001
    world.ask("a", 1)


def test_cost_has_a_quota_of_its_own() -> None:
    world = World(Quota(texts_per_s=1000.0, cost_per_s=0.5))
    world.ask("a", 1, cost=0.4)
    assert refused(world, "a", 1, cost=0.2).metadata == {
        "caller": "a",
        "quota": "cost_per_s",
        "asked": "0.2",
        "left": "0.1",
        "limit": "0.5",
    }
    world.ask("a", 1, cost=0.1)


def test_what_is_refused_is_not_owed_for() -> None:
    world = World(Quota(texts_per_s=10.0))
    world.ask("a", 8)
    for _ in range(100):
        refused(world, "a", 9)
    world.ask("a", 2)


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 3)), max_size=60), st.floats(0.5, 50))
def test_in_the_long_run_nobody_gets_more_than_the_quota(calls: list[tuple[int, float]], rate: float) -> None:
    world, let_in, largest, began = World(Quota(texts_per_s=rate)), 0, 0, 100.0
    for texts, pause_s in calls:
        world.now += pause_s
        try:
            world.ask("a", texts)
        except QuotaExceeded as error:
            assert error.retry_after_s is not None and error.retry_after_s > 0
            world.now += error.retry_after_s * 1.0001 + 1e-6
            world.ask("a", texts)
        let_in, largest = let_in + texts, max(largest, texts)
    assert let_in <= rate * (world.now - began + BURST_S) + largest + 1e-6


def test_calls_under_way_have_a_limit() -> None:
    world = World(Quota(calls=2))
    with world.quotas.running("a"), world.quotas.running("a"):
        message = "asks for 3, and 0 are left of its calls, which are 2"
        with pytest.raises(QuotaExceeded, match=message) as caught, world.quotas.running("a"):
            pass
        assert caught.value.retry_after_s == CALL_RETRY_S
        with world.quotas.running("b"):
            pass
    with world.quotas.running("a"):
        pass


def test_a_caller_s_own_quota_goes_before_the_default_and_may_change() -> None:
    world = World(Quota(calls=1))
    with world.quotas.running("a", Quota()), world.quotas.running("a", Quota()), pytest.raises(QuotaExceeded):
        world.quotas.running("a", Quota(calls=2)).__enter__()


def test_who_owes_nothing_is_forgotten() -> None:
    world = World(Quota(texts_per_s=1.0))
    world.ask("debtor", 1000)
    with world.quotas.running("busy"):
        for number in range(5 * SWEEP_FROM):
            world.ask(f"host-{number}", 1)
            world.now += 0.01
        assert len(world.quotas._accounts) <= 2 * SWEEP_FROM
        assert {"debtor", "busy"} <= set(world.quotas._accounts)
    refused(world, "debtor", 1)


def test_only_callers_that_were_told_of_have_a_label_and_only_so_many() -> None:
    world = World(Quota(texts_per_s=10.0))
    names = [f"caller-{number}" for number in range(MOST_CALLERS + 4)]
    world.metrics.know(names)
    for name in [*names, "ipv4:10.0.0.1"]:
        world.ask(name, 10, cost=0.5)
        refused(world, name, 1)
    assert world.metric("texts_total", caller="caller-0") == 10
    assert world.metric("cost_seconds_total", caller="other") == 5 * 0.5
    assert world.metric("refusals_total", caller="other", quota="texts_per_s") == 5
    labels = {s.labels["caller"] for family in world.registry.collect() for s in family.samples}
    assert labels == {*names[:MOST_CALLERS], "other"}


def test_calls_under_way_are_shown() -> None:
    world = World(Quota())
    world.metrics.know(["a"])
    with world.quotas.running("a"), world.quotas.running("b"):
        assert (world.metric("calls", caller="a"), world.metric("calls", caller="other")) == (1, 1)
    assert (world.metric("calls", caller="a"), world.metric("calls", caller="other")) == (0, 0)
