"""`python -m bench.fleet`: how many servers, which routing, how old reports, what a zone costs. See docs/scaling.md."""

import argparse
import gc
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from bench.flags.values import not_negative, package_at, positive, seed, whole
from bench.fleet.costs import MACHINES
from bench.fleet.replica import Text
from bench.fleet.simulation import Fleet, Found, Lengths, capacity, long_share, poisson, simulate, texts_of
from bench.fleet.validation import validate
from bench.sentences import english, flores
from engine.queueing.cost import Measured
from models.package.checked import PackageError
from models.package.folder import Package

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
ROUTINGS = ("round robin", "least requests", "power of two", "queue time", "length")
REPORTS_S = (0.0, 0.05, 0.1, 0.5, 1.0, 5.0)
COPIED = 10_000
"""Replicas of a fleet whose copies a larger one begins with."""
WAITED_FOR = 0.995
"""Of the texts of such a fleet: the longest take twice as long as what p99 is about."""
SENTENCES = 500
HOUR_S = 3600
WORKERS, ROWS = 2, 64
"""Of a replica, and of a worker, where neither is said."""
COSTS = {"fixed_ms": 2.0, "each_ms": 0.4, "token_ms": 0.1}
"""Of a step, of each of its rows, and of a source token: en-pt on one core at 2.8 GHz."""
FEWEST_TO_LOSE = 3
"""Replicas of a fleet of which a zone can be lost."""
MOST_TEXTS = 100_000_000
"""That come, which take a gigabyte; or that do not count."""
MOST_WORKERS = 1_000_000
"""Of a fleet, which take another one."""
MOST_ROWS = 100_000
"""Of a replica, which take a third one where it is asked what they can."""
MOST_MS = 3.6e6
"""Of a cost."""
MOST_VALIDATED_S = 3600.0
"""In which texts come to real servers: every call waits from the start."""
MOST_PROCESSES = 16
"""Real servers, each of some 200 MB, which start one after another."""


class WrongUsage(Exception):
    """What is asked for cannot be simulated."""


@dataclass(frozen=True)
class Study:
    """What all parts are about."""

    fleet: Fleet
    lengths: Lengths
    load: float
    """Share of the capacity that is asked for."""
    seconds: float
    """That texts come."""
    uncounted_s: float
    """Of them, the first ones."""

    def run(self, fleet: Fleet, rate: float) -> Found:
        """A large fleet begins as many copies of one that was empty long before, a small one empty.

        Raises WrongUsage where no text would count.
        """
        count, uncounted = self.counts(fleet.replicas, rate)
        begun, waited_for = None, 1.0
        if fleet.replicas > COPIED:
            small = replace(fleet, replicas=COPIED, zone_loss=False, seed=fleet.seed + 1)
            share = COPIED / fleet.replicas
            begun = simulate(small, self._texts(small, share * rate), round(share * uncounted))
            uncounted, waited_for = 0, WAITED_FOR
        return simulate(fleet, self._texts(fleet, rate), count, uncounted, begun, waited_for)

    def counts(self, replicas: int, rate: float) -> tuple[int, int]:
        """Texts that come, and those that do not count. Raises WrongUsage where none would count, or they are many."""
        if (workers := replicas * self.fleet.workers) > MOST_WORKERS:
            told = f"{replicas:,} replicas have {workers:,} workers, and {MOST_WORKERS:,} are the most"
            raise WrongUsage(f"{told}: lower --replicas, --workers or --rate")
        for flag, seconds in (("--seconds", self.seconds), ("--uncounted-s", self.uncounted_s)):
            if rate * seconds > MOST_TEXTS:
                told = f"{rate:g} texts/s in {seconds:g} s are {rate * seconds:g}, and {MOST_TEXTS:,} are the most"
                raise WrongUsage(f"{told}: lower {flag}, or --rate, --load or --replicas")
        count, uncounted = round(rate * self.seconds), round(rate * self.uncounted_s)
        if count <= (0 if replicas > COPIED else uncounted):
            raise WrongUsage(f"{count} texts come, and the first {uncounted} do not count: raise --seconds or --rate")
        return count, uncounted

    def _texts(self, fleet: Fleet, rate: float) -> Iterator[Text]:
        return texts_of(fleet, self.lengths, poisson(rate, fleet.seed))

    def at_load(self, fleet: Fleet, load: float) -> Found:
        return self.run(fleet, load * fleet.replicas * capacity(fleet, self.lengths))


def main(given: Sequence[str] | None = None) -> None:
    """Command line. Exits with 2 for what cannot be simulated."""
    parser = _parser()
    arguments = parser.parse_args(given)
    try:
        _tell_costs(arguments)
    except WrongUsage as error:
        parser.error(str(error))
    if (rows := arguments.workers * arguments.rows) > MOST_ROWS:
        parser.error(f"a replica has {rows:,} rows, and {MOST_ROWS:,} are the most: lower --rows or --workers")
    if arguments.part == "validate" and arguments.seconds > MOST_VALIDATED_S:
        parser.error(f"--seconds is {arguments.seconds:g}, and {MOST_VALIDATED_S:g} are the most of --part validate")
    if arguments.processes > MOST_PROCESSES:
        parser.error(f"--processes is {arguments.processes}, and {MOST_PROCESSES} are the most: each is a real server")
    for name in COSTS:
        if (ms := getattr(arguments, name)) > MOST_MS:
            parser.error(f"--{name.replace('_', '-')} is {ms:g}, and {MOST_MS:g} are the most: an hour")
    if arguments.beams > arguments.rows:
        parser.error(f"a text of {arguments.beams} beams has no room in {arguments.rows} rows: raise --rows")
    if arguments.part == "zone" and min(arguments.replicas) < FEWEST_TO_LOSE:
        parser.error(f"--replicas is {min(arguments.replicas)}, and a third is lost: from {FEWEST_TO_LOSE} on")
    try:
        _run(arguments)
    except (WrongUsage, PackageError) as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--part", choices=("size", "routing", "reports", "zone", "validate"), help="only this")
    parser.add_argument(
        "--package", type=package_at, default=ZOO, help="that is validated, and whose lengths texts have"
    )
    parser.add_argument("--replicas", type=whole, nargs="+", default=[10, 100], help="of the fleets that are compared")
    parser.add_argument("--on", choices=MACHINES, help="what steps and the encoder cost, as was measured there")
    parser.add_argument("--workers", type=whole, help="of a replica (2; those of --on)")
    parser.add_argument("--rows", type=whole, help="of each worker's batch (64; the most that --on was measured with)")
    parser.add_argument("--beams", type=whole, default=1, help="of each text")
    parser.add_argument("--fixed-ms", type=positive, help="of a step, whatever its rows (2)")
    parser.add_argument("--each-ms", type=not_negative, help="of a step, for each row (0.4)")
    parser.add_argument("--token-ms", type=not_negative, help="of the encoder, for a source token (0.1)")
    parser.add_argument("--uncounted-s", type=not_negative, default=1.0, help="not counted: a fleet begins empty")
    parser.add_argument("--routing", choices=ROUTINGS, nargs="+", default=ROUTINGS, help="to compare (all)")
    parser.add_argument(
        "--load", type=positive, default=0.7, help="share of the capacity that is asked for, of routing and reports"
    )
    parser.add_argument("--rate", type=positive, default=1000.0, help="texts a second to find a size for")
    parser.add_argument("--slo-ms", type=positive, default=1000.0, help="99 of 100 texts are to be answered by then")
    parser.add_argument("--hour", type=positive, default=0.10, help="price of a replica's hour")
    parser.add_argument("--processes", type=whole, default=1, help="servers to validate with")
    parser.add_argument("--paced", action="store_true", help="they wait in each turn, and leave each other the cores")
    parser.add_argument("--seconds", type=positive, default=60.0, help="that texts come")
    parser.add_argument("--seed", type=seed, default=0, help="of what is left to chance")
    return parser


def _tell_costs(arguments: argparse.Namespace) -> None:
    """Fills in what is left open: by the machine of `--on`, where there is one. Raises WrongUsage."""
    costs = dict(zip(COSTS, (getattr(arguments, name) for name in COSTS), strict=True))
    if arguments.on is None:
        arguments.workers, arguments.rows = arguments.workers or WORKERS, arguments.rows or ROWS
        for name, default in COSTS.items():
            setattr(arguments, name, default if costs[name] is None else costs[name])
        return
    if arguments.part == "validate":
        raise WrongUsage("--part validate measures what steps cost here: leave --on out")
    machine, beams = MACHINES[arguments.on], arguments.beams
    if given := [f"--{name.replace('_', '-')}" for name, value in costs.items() if value is not None]:
        raise WrongUsage(f"--on {arguments.on} says what {', '.join(given)} would: leave one of them out")
    if beams not in machine.steps:
        known = ", ".join(map(str, machine.steps))
        raise WrongUsage(f"--beams is {beams}, and {arguments.on} was measured with {known}: ask for one of these")
    most = machine.most_rows(beams)
    arguments.workers, arguments.rows = arguments.workers or machine.workers, arguments.rows or most
    if arguments.rows > most:
        raise WrongUsage(f"--rows is {arguments.rows}, and {arguments.on} was measured with {most}: ask for no more")
    measured = machine.measured(beams)
    arguments.fixed_ms, arguments.each_ms, arguments.token_ms = (1000 * one for one in astuple(measured))
    line = f"a step takes {arguments.fixed_ms:.3f} ms and {arguments.each_ms:.4f} for each row"
    print(
        f"{arguments.on} ({machine.source}; {machine.what}): {line}, within {machine.worst(beams):.0%} of each figure"
    )


def _run(arguments: argparse.Namespace) -> None:
    """Raises WrongUsage or PackageError."""
    if arguments.part == "validate":
        validate(arguments.package, arguments.processes, arguments.seconds, arguments.seed, arguments.paced)
        return
    gc.disable()  # it would look through millions of texts again and again, none of which is part of a cycle
    measured = Measured(arguments.fixed_ms / 1000, arguments.each_ms / 1000, arguments.token_ms / 1000)
    fleet = Fleet(arguments.replicas[0], measured, arguments.workers, arguments.rows, seed=arguments.seed)
    lengths = lengths_of(arguments.package, arguments.beams)
    fleet = replace(fleet, long_share=long_share(fleet, lengths))
    study = Study(fleet, lengths, arguments.load, arguments.seconds, arguments.uncounted_s)
    most = capacity(fleet, study.lengths)
    if arguments.part in (None, "size"):
        study.counts(1, arguments.rate)
    if arguments.part != "size":
        for replicas in arguments.replicas:  # before any of them takes its time
            study.counts(replicas, study.load * replicas * most)
    print(f"a replica answers {most:.1f} texts/s at most")
    if arguments.part in (None, "size"):
        size(study, arguments.rate, arguments.slo_ms / 1000, arguments.hour)
    for replicas in arguments.replicas:
        of = replace(study, fleet=replace(fleet, replicas=replicas))
        compared = partial(routing, names=arguments.routing)
        for part, tell in (("routing", compared), ("reports", reports), ("zone", zone)):
            if arguments.part == part or (arguments.part is None and (part != "zone" or replicas >= FEWEST_TO_LOSE)):
                tell(of)


def lengths_of(package: Path, beams: int) -> Lengths:
    """Of FLORES-200: how many tokens its English has, and its Portuguese, which stands for what is decoded."""
    opened = Package.open(package)
    tokenizer = opened.tokenizer()
    sources, targets = english(SENTENCES), flores("pt")[:SENTENCES]
    sizes = [len(tokenizer.encode(text)) for text in sources]
    steps = [len(tokenizer.encode(text)) for text in targets]
    return Lengths(sizes, steps, beams, sum(map(len, sources)) / len(sources))


def size(study: Study, rate: float, slo_s: float, hour: float) -> None:
    """The fewest replicas for a rate and a p99, and what a million characters cost on them."""
    most = capacity(study.fleet, study.lengths)

    def p99_s(replicas: int) -> float:
        if rate >= replicas * most:
            return inf
        return study.run(replace(study.fleet, replicas=replicas), rate).quantile(0.99)

    few, many = 0, max(2, 4 * round(rate / most))
    if (fastest_s := p99_s(many)) > slo_s:
        asked = f"{rate:g} texts/s with p99 <= {1000 * slo_s:g} ms"
        print(f"{asked}: no fleet is fast enough; {many} replicas have {1000 * fastest_s:.0f} ms, and hardly wait")
        return
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if p99_s(middle) <= slo_s else (middle, many)
    million = hour * many / (rate * study.lengths.characters * HOUR_S) * 1e6
    print(
        f"{rate:g} texts/s with p99 <= {1000 * slo_s:g} ms: {many} replicas, {rate / many / most:.0%} of what they can"
    )
    print(f"a million characters cost {million:.5f} where a replica's hour costs {hour:g}")


def routing(study: Study, names: Sequence[str]) -> None:
    """p50 and p99 of these ways."""
    for name in names:
        found = study.at_load(replace(study.fleet, routing=name), study.load)
        _tell(study, name, found)


def reports(study: Study) -> None:
    """p99 by how old reports become."""
    for name in ("least requests", "power of two", "queue time"):
        for every_s in REPORTS_S:
            found = study.at_load(replace(study.fleet, routing=name, report_s=every_s), study.load)
            _tell(study, f"{name}, reports every {1000 * every_s:g} ms", found)


def zone(study: Study) -> None:
    """What becomes of texts that come after a third of the replicas is lost."""
    for load in (0.5, 0.6, 0.65, 0.7):
        found = study.at_load(replace(study.fleet, zone_loss=True), load)
        p50, p99 = (1000 * _quantile(found, q) for q in (0.5, 0.99))
        print(f"{study.fleet.replicas:7} replicas at {load:.0%}, a third lost: then p50 {p50:.0f} ms, p99 {p99:.0f} ms")


def _quantile(found: Found, q: float) -> float:
    seconds = sorted(found.after_loss)
    return float(seconds[int(q * (len(seconds) - 1))])


def _tell(study: Study, what: str, found: Found) -> None:
    p50, p99 = (1000 * found.quantile(q) for q in (0.5, 0.99))
    told = f"{study.fleet.replicas:7} replicas at {study.load:.0%}, {what}: p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    print(told, flush=True)


if __name__ == "__main__":
    main()
