"""`python -m tests.engine.exact`: the tokens of every family beside those of `generate` and of CTranslate2."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tests.engine.exact.like_ctranslate2 import NO_CONVERTER
from tests.engine.exact.test_families import FAMILIES, compare, compare_with_ctranslate2, make, make_native


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.exact", description=__doc__)
    parser.add_argument("sentences", type=int, help="of each family")
    parser.add_argument("families", nargs="*", default=list(FAMILIES), help="all, if none is named")
    parser.add_argument("--native", action="store_true", help="on our own operators, with other heads")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| family | greedy | 4 beams | CTranslate2, greedy | the same bits alone | different tokens |", flush=True)
    for name in arguments.families:
        write = make_native if arguments.native else make
        with TemporaryDirectory() as folder, write(FAMILIES[name], Path(folder)) as made:
            found = compare(made, arguments.sentences)
            pairs = [*zip(found.equal, found.ties, strict=True)]
            pairs += [] if name in NO_CONVERTER else [compare_with_ctranslate2(made, arguments.sentences)]
        told = [f"{equal} + {ties}" if ties else f"{equal}" for equal, ties in pairs]
        told += ["no converter"] if name in NO_CONVERTER else []
        print(f"| {name} | {' | '.join(told)} | {found.same} | {found.tokens} |", flush=True)


if __name__ == "__main__":
    main()
