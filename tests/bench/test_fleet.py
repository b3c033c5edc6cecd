"""bench.fleet: what queueing theory knows, and what routing, reports and zones must do."""

import random
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from bench.fleet import validation
from bench.fleet.__main__ import ZOO, Study, main, size
from bench.fleet.costs import MACHINES, TOKENS
from bench.fleet.replica import Text
from bench.fleet.simulation import Fleet, Found, Lengths, capacity, poisson, simulate, texts_of
from engine.queueing.cost import Measured
from tests.simulation.calls import Call
from tests.simulation.machine import Speed
from tests.simulation.world import World

LENGTHS = Lengths([5, 10, 20, 60], [6, 12, 24, 70])
MEASURED = Measured(fixed=0.002, each=0.0004, token=0.0001)


def mean_s(found: Found) -> float:
    return float(found.seconds.mean())


def test_one_row_is_the_queue_of_pollaczek_and_khinchine() -> None:
    fleet, rate = Fleet(1, Measured(0.001, 0.0, 0.0), workers=1, rows=1), 60.0
    texts = list(texts_of(fleet, Lengths([1, 1], [5, 15]), islice(poisson(rate, 1), 60_000)))
    services = np.array([0.001 * text.steps for text in texts])
    waiting_s = rate * (services**2).mean() / 2 / (1 - rate * services.mean())
    assert mean_s(simulate(fleet, texts, len(texts))) == pytest.approx(services.mean() + waiting_s, rel=0.05)


def test_steps_that_cost_what_their_rows_do_share_a_processor() -> None:
    """M/G/1-PS: the mean depends on no more of the lengths than their mean (Kleinrock 1976, section 4.4)."""
    fleet, rate = Fleet(1, Measured(0.0, 0.001, 0.0), workers=1, rows=10**6), 60.0
    texts = list(texts_of(fleet, Lengths([1] * 4, [2, 2, 2, 26]), islice(poisson(rate, 2), 60_000)))
    service_s = float(np.mean([0.001 * text.steps for text in texts]))
    assert mean_s(simulate(fleet, texts, len(texts))) == pytest.approx(service_s / (1 - rate * service_s), rel=0.05)


@pytest.mark.parametrize(("workers", "load"), [(1, 0.5), (2, 0.7)])
def test_the_engine_on_a_clock_of_its_own_takes_as_long(workers: int, load: float) -> None:
    """The real queue, workers and batches, with steps that cost what they are simulated to cost."""
    speed = Speed()
    fleet = Fleet(1, Measured(speed.step, speed.row, speed.token), workers=workers, routing="round robin")
    chance, most = random.Random(2), capacity(fleet, Lengths(range(5, 41), range(5, 41)))
    world, texts = World(3, workers=workers, rows=fleet.rows, speed=speed), list[Text]()
    for number, at in enumerate(islice(poisson(load * most, 1), 500)):
        length = chance.randint(5, 40)
        world.arrive(Call([length]), at)
        texts.append(Text(at, length, length, 1, 1.0, number))
    world.run()
    ours_s = simulate(fleet, texts, len(texts)).all_s
    real_s = [call.ended - call.arrived for call in world.calls if call.ended is not None]
    assert len(real_s) == len(ours_s)
    for q in (0.5, 0.99):
        assert np.quantile(ours_s, q) / np.quantile(real_s, q) == pytest.approx(1, abs=0.08)


def test_processes_share_the_cores_of_a_machine() -> None:
    """As slow as one of half the speed, while both have something to do."""
    slow = Measured(2 * MEASURED.fixed, 2 * MEASURED.each, 2 * MEASURED.token)
    texts = [Text(0.0, 10, 12, 1, 1.0, number) for number in range(2)]
    both = simulate(Fleet(2, MEASURED, workers=1, routing="round robin", cores=1.0), texts, 2)
    alone = simulate(Fleet(1, slow, workers=1, routing="round robin"), texts[:1], 1)
    assert both.all_s.tolist() == pytest.approx(alone.all_s.tolist() * 2)


def test_better_routing_has_the_shorter_tail_and_old_reports_undo_it() -> None:
    most = 8 * capacity(Fleet(1, MEASURED, rows=8), LENGTHS)

    def p99(routing: str, report_s: float = 0.0) -> float:
        fleet = Fleet(8, MEASURED, rows=8, routing=routing, report_s=report_s)
        return simulate(fleet, texts_of(fleet, LENGTHS, poisson(0.8 * most, 3)), 8000, 2000).quantile(0.99)

    assert p99("least requests") < p99("power of two") < p99("round robin")
    assert p99("least requests", 2.0) > 2 * p99("power of two", 2.0)


def test_a_fleet_that_begins_as_copies_is_as_busy_as_one_that_ran_for_long() -> None:
    lengths = Lengths(range(5, 41), range(5, 41))
    most = capacity(Fleet(1, MEASURED), lengths)

    def fleet(replicas: int, count: int, uncounted: int, begun: Found | None = None) -> Found:
        of = Fleet(replicas, MEASURED, seed=replicas)
        due = poisson(0.7 * replicas * most, replicas)
        return simulate(of, texts_of(of, lengths, due), count, uncounted, begun)

    small = fleet(50, 10_000, 0)
    copies, empty = fleet(100, 4000, 0, small), fleet(100, 4000, 0)
    ran_long = fleet(100, 20_000, 16_000)
    for q in (0.5, 0.99):
        assert copies.quantile(q) == pytest.approx(ran_long.quantile(q), rel=0.05)
    assert empty.all_s[:1000].mean() < 0.8 * ran_long.seconds.mean()  # not so, where it begins with nothing to do
    assert copies.all_s[:1000].mean() == pytest.approx(ran_long.seconds.mean(), rel=0.1)


def test_a_lost_zone_loses_no_text() -> None:
    fleet = Fleet(6, MEASURED, zone_loss=True)
    due = list(islice(poisson(3 * capacity(fleet, LENGTHS), 4), 4000))
    found = simulate(fleet, texts_of(fleet, LENGTHS, due), len(due))
    assert np.isfinite(found.all_s).all() and (found.all_s > 0).all()
    again = simulate(fleet, texts_of(fleet, LENGTHS, due), len(due))
    assert (again.all_s == found.all_s).all()  # nothing is left to chance but the seed


@pytest.mark.parametrize(("slo_s", "told"), [(0.5, "2 replicas, "), (0.05, "no fleet is fast enough; ")])
def test_a_size_is_the_smallest_that_is_fast_enough_if_any_is(
    slo_s: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = Fleet(1, MEASURED)
    study, rate = Study(fleet, LENGTHS, 0.7, seconds=20.0, uncounted_s=1.0), 1.2 * capacity(fleet, LENGTHS)
    size(study, rate, slo_s, hour=0.1)
    assert told in capsys.readouterr().out
    by_size = [study.run(Fleet(replicas, MEASURED), rate).quantile(0.99) for replicas in (1, 2, 5)]
    assert by_size[0] > 0.5 > by_size[1] > by_size[2] > 0.05


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--rate 0", "0 is no number above 0"),
        ("--each-ms nan", "nan is no number above 0"),
        ("--replicas 10 0", "0 is less than 1"),
        ("--rows 2 --beams 4", "a text of 4 beams has no room in 2 rows"),
        ("--part zone --replicas 2", "--replicas is 2, and a third is lost: from 3 on"),
        ("--part routing --replicas 1 --seconds 0.5", "texts come, and the first 86 do not count"),
        ("--package nowhere", "nowhere is not a package"),
        ("--seed -5", "-5 is less than 0"),
        (
            "--part size --rate 1e300",
            "1e+300 texts/s in 60 s are 6e+301, and 100,000,000 are the most: lower --seconds",
        ),
        ("--part size --seconds 1e9", "1000 texts/s in 1e+09 s are 1e+12, and 100,000,000 are the most"),
        ("--part routing --uncounted-s 1e308", "and 100,000,000 are the most: lower --uncounted-s"),
        ("--part zone --replicas 5 1000000", "1,000,000 replicas have 2,000,000 workers, and 1,000,000 are the most"),
        ("--workers 2 --rows 1000000", "a replica has 2,000,000 rows, and 100,000 are the most"),
        ("--token-ms 1e308", "--token-ms is 1e+308, and 3.6e+06 are the most"),
        ("--part validate --seconds 1e9", "--seconds is 1e+09, and 3600 are the most of --part validate"),
        ("--part validate --processes 17", "--processes is 17, and 16 are the most: each is a real server"),
    ],
)
def test_what_cannot_be_simulated_is_refused(given: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(given.split())
    assert refused.value.code == 2
    assert told in capsys.readouterr().err


def test_costs_are_those_of_the_runs_they_name() -> None:
    results = Path(__file__).parents[2] / "bench" / "results"
    rates = next(
        line for line in (results / MACHINES["epyc"].source).read_text().splitlines() if line.startswith("| int8 |")
    )
    assert [float(cell.split()[0]) for cell in rates.strip("| ").split("|")[1:]] == [
        pytest.approx(2000 * sentences / ms) for beams in (1, 4) for sentences, ms in MACHINES["epyc"].steps[beams]
    ]
    for name in ("h100", "h200"):
        machine, lines = MACHINES[name], (results / MACHINES[name].source).read_text().splitlines()
        for beams, told in ((1, "greedy"), (4, "beam 4")):
            for sentences, ms in machine.steps[beams]:
                start = f"| {told}, {sentences} sentence{'s' * (sentences > 1)} | {beams * sentences} |"
                of_batch = next(line for line in lines if line.startswith(start)).split("|")[4]
                assert TOKENS * (ms + machine.token_ms * sentences) == pytest.approx(float(of_batch))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("beams", [1, 4])
def test_the_line_through_what_was_measured_is_near_it(name: str, beams: int) -> None:
    machine = MACHINES[name]
    line, worst = machine.measured(beams), machine.worst(beams)
    assert line.fixed > 0 and line.each > 0 and worst < 0.3
    for sentences, ms in machine.steps[beams]:
        assert 1000 * (line.fixed + line.each * beams * sentences) == pytest.approx(ms, rel=worst + 1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--on", "h100", "--fixed-ms", "1"], "leave one of them out"),
        (["--on", "h100", "--beams", "2"], "measured with 1, 4"),
        (["--on", "h100", "--rows", "300"], "--rows is 300, and h100 was measured with 256"),
        (["--on", "h100", "--part", "validate"], "leave --on out"),
    ],
)
def test_what_was_not_measured_is_refused(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert message in capsys.readouterr().err


def test_validation_in_too_little_time_for_a_call_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validation, "TEXTS", 8)
    validation.validate(ZOO, processes=1, seconds=1e-6, seed=0, paced=True)
    told = capsys.readouterr().out
    for load in ("30%", "50%", "70%"):
        assert f"load {load}: none of 0 calls was answered in 1e-06 s: raise --seconds" in told
