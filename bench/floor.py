"""`python -m bench.floor [PACKAGE ...]`: how long a decoder step must take on this machine, and how long it takes.

The floor of a step is the larger of two: the bytes of its weights over what one core reads a second from a working set
of that size, and its multiply-adds over what the best instructions of the core do. See docs/benchmarks.md.
"""

import argparse
from pathlib import Path

from bench.cpu.steps import measure, show
from bench.flags.values import package_at
from bench.machine.noise import instructions
from bench.machine.peak import Numbers
from bench.pages.markdown import machine
from engine.loading.load import Kernels
from models.package.folder import Package


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__)
    parser.add_argument(
        "packages", nargs="*", type=package_at, metavar="PACKAGE", help="packages whose steps are measured"
    )
    given = list[tuple[str, Path, Numbers, Kernels]]()
    for folder in parser.parse_args().packages:
        numbers: Numbers = "int8" if Package.open(folder).manifest.graphs.precision.weights == "int8" else "fp32"
        given += [(f"{folder.name}, standard operators", folder, numbers, "off")]
        given += [(f"{folder.name}, our own operators", folder, numbers, "required")]
    print(f"{machine()}, {instructions()}\n")
    print(show(measure(given)))


if __name__ == "__main__":
    main()
