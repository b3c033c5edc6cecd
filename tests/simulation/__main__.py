"""`python -m tests.simulation`: many schedules, and the goodput under load. One that fails is told in short."""

import argparse
from itertools import product

from tests.simulation.goodput import FAST, SLOW, goodput
from tests.simulation.schedules import run_many


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load; 0: none")
    arguments = parser.parse_args()
    told = run_many(arguments.first, arguments.schedules)
    print(f"{arguments.schedules} schedules, 0 violations: {dict(told)}")
    if not arguments.seconds:
        return
    for (name, machine), load in product({"fast": FAST, "slow": SLOW}.items(), (0.7, 1.5, 2.5, 10.0)):
        found = goodput(machine, arguments.first, load, arguments.seconds)
        lost = f"{found.lost_rows:.1%}"
        print(f"{name}, {load:g} x capacity, deadline 1 s: goodput {found.share:.0%}, rows for nobody {lost}")


if __name__ == "__main__":
    main()
