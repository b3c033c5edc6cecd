"""What is compared, and how often."""

import argparse
from pathlib import Path

from bench.flags.values import package_at, whole

ZOO = Path(__file__).parents[2] / "models" / "zoo"


def add_packages(parser: argparse.ArgumentParser) -> None:
    """`packages`: of en-pt, in fp32 and in int8 where none is given."""
    both = [ZOO / "en-pt", ZOO / "en-pt-int8"]
    parser.add_argument("packages", nargs="*", type=package_at, default=both, metavar="PACKAGE", help="of en-pt")


def add_turns(parser: argparse.ArgumentParser, sentences: int, repeats: int) -> None:
    """`sentences` and `repeats`, with their defaults."""
    parser.add_argument("--sentences", type=whole, default=sentences, metavar="N", help=f"default: {sentences}")
    parser.add_argument("--repeats", type=whole, default=repeats, metavar="N", help=f"turns; default: {repeats}")
