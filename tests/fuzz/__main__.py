"""`python -m tests.fuzz TARGET`: inputs by Atheris (libFuzzer), from those of `corpus` on, until one fails.

What reaches something new is kept in artifacts/fuzz, and the next run goes on from there; an input that fails lies
there too, and `python -m tests.fuzz TARGET FILE` tries it again. Needs the extra `fuzz`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import CORPUS, TARGETS, trying

FOUND = Path(__file__).parents[2] / "artifacts" / "fuzz"
SEEN = ["dragoman", "engine", "models", "server"]
"""Packages whose branches the fuzzer sees."""
MOST_BYTES = 12_288
"""Of an input."""
WAIT_S = 30
"""For one."""
MEMORY_MB = 4096


def fuzz(target: str, seconds: int) -> None:
    """Ends the process: with 0, or at the first input that fails."""
    import atheris

    found = FOUND / target
    found.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=SEEN), trying(target) as attempt:

        def one(data: bytes) -> None:
            attempt(data)

        limits = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", f"-timeout={WAIT_S}"]
        places = [f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={found}-", str(found), str(CORPUS / target)]
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", *places], one)
        atheris.Fuzz()


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS, help="; ".join(f"{name}: {what}" for name, what in TARGETS.items()))
    parser.add_argument("inputs", nargs="*", type=Path, help="try these files, and nothing else")
    parser.add_argument("--seconds", type=int, default=60, help="how long")
    given = parser.parse_args(arguments)
    if given.inputs:
        with trying(given.target) as attempt:
            for file in given.inputs:
                attempt(file.read_bytes())
    else:
        fuzz(given.target, given.seconds)


if __name__ == "__main__":
    main()
