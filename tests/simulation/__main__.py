"""`python -m tests.simulation`: many schedules, and the goodput under load. One that fails is told in short."""

import argparse
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from tests.simulation.goodput import FAST, SLOW, goodput
from tests.simulation.schedules import run_many

PART = 500
"""Schedules that a process makes at a time."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--processes", type=int, default=1, help="that share them")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load; 0: none")
    arguments = parser.parse_args()
    told = run_shared(arguments.first, arguments.schedules, arguments.processes)
    print(f"{arguments.schedules} schedules, 0 violations: {dict(told)}")
    if not arguments.seconds:
        return
    for (name, machine), load in product({"fast": FAST, "slow": SLOW}.items(), (0.7, 1.5, 2.5, 10.0)):
        found = goodput(machine, arguments.first, load, arguments.seconds)
        lost = f"{found.lost_rows:.1%}"
        print(f"{name}, {load:g} x capacity, deadline 1 s: goodput {found.share:.0%}, rows for nobody {lost}")


def run_shared(first: int, schedules: int, processes: int) -> Counter[str]:
    """As `run_many`, in several processes."""
    seeds = range(first, first + schedules)
    parts = [seeds[start : start + PART] for start in range(0, schedules, PART)]
    told = Counter[str]()
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(run_many, [part.start for part in parts], map(len, parts)):
            told.update(found)
    return told


if __name__ == "__main__":
    main()
