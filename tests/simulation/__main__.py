"""`python -m tests.simulation`: many schedules, and the goodput under load. One that fails is told in short."""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from tests.simulation.goodput import FAST, SLOW, goodput
from tests.simulation.schedules import run_many

PART = 1000
"""Schedules that a process makes at a time."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first: the last line tells where to go on")
    parser.add_argument("--processes", type=int, default=1, help="that share them")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load; 0: none")
    arguments = parser.parse_args()
    told, done, began = Counter[str](), 0, time.monotonic()
    for part, ends in run_shared(arguments.first, arguments.schedules, arguments.processes):
        told.update(ends)
        done += len(part)
        rate = done / (time.monotonic() - began)
        print(f"{done} schedules, {rate:.0f} a second, seeds before {part.stop}: 0 violations", flush=True)
    print(f"{done} schedules, 0 violations: {dict(told)}", flush=True)
    if not arguments.seconds:
        return
    for (name, machine), load in product({"fast": FAST, "slow": SLOW}.items(), (0.7, 1.5, 2.5, 10.0)):
        found = goodput(machine, arguments.first, load, arguments.seconds)
        lost = f"{found.lost_rows:.1%}"
        print(f"{name}, {load:g} x capacity, deadline 1 s: goodput {found.share:.0%}, rows for nobody {lost}")


def run_shared(first: int, schedules: int, processes: int) -> Iterator[tuple[range, Counter[str]]]:
    """As `run_many`, in several processes: part by part, in order."""
    seeds = range(first, first + schedules)
    parts = [seeds[start : start + PART] for start in range(0, schedules, PART)]
    with ProcessPoolExecutor(processes) as pool:
        yield from zip(parts, pool.map(run_many, [part.start for part in parts], map(len, parts)), strict=True)


if __name__ == "__main__":
    main()
