"""`python -m tests.simulation`: many schedules, and the goodput under load. A schedule that fails names its seed."""

import argparse
from itertools import product

from tests.simulation.goodput import FAST, SLOW, goodput
from tests.simulation.test_schedules import run_schedule


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load")
    arguments = parser.parse_args()
    for seed in range(arguments.first, arguments.first + arguments.schedules):
        run_schedule(seed)
    print(f"{arguments.schedules} schedules, 0 violations")
    for (name, machine), load in product({"fast": FAST, "slow": SLOW}.items(), (0.7, 1.5, 2.5, 10.0)):
        told = goodput(machine, arguments.first, load, arguments.seconds)
        lost = f"{told.lost_rows:.1%}"
        print(f"{name}, {load:g} x capacity, deadline 1 s: goodput {told.share:.0%}, rows for nobody {lost}")


if __name__ == "__main__":
    main()
