"""`python -m bench.options.packed [PACKAGE ...]`: sources of many lengths, packed against runs of equal lengths.

The encoder of our own operators packs; that of standard operators, which serves where ours are not built, runs sources
of one length together. One thread, in turn. See docs/benchmarks.md.
"""

import argparse
from functools import partial
from pathlib import Path

from bench.flags.compared import add_packages, add_turns
from bench.machine.noise import instructions
from bench.measure import alternate, seconds
from bench.options.encoding import mixed
from bench.pages.markdown import machine, table
from engine.devices.session import CPU
from engine.loading.load import Loadable, open_decoder
from models.package.folder import Package

PACKED, EQUAL = "packed, our own operators", "equal lengths, standard operators"
SENTENCES, REPEATS = 64, 9


def compare(path: Path, sentences: int, repeats: int) -> list[str]:
    """The row of a package."""
    package = Package.open(path)
    tokenizer, model = package.tokenizer(), Loadable.of(package)
    sources = [tokenizer.encode(text) for text in mixed(sentences)]
    packed, equal = (open_decoder(model, CPU, kernels=kernels) for kernels in ("required", "off"))
    encodes = {PACKED: partial(packed.encode, sources), EQUAL: partial(equal.encode, sources)}
    series = alternate({name: partial(seconds, encode) for name, encode in encodes.items()}, repeats)
    ratios = sorted(b / a for a, b in zip(series[PACKED].values, series[EQUAL].values, strict=True))
    tokens = sum(map(len, sources))
    speeds = [f"{tokens / series[name].median:,.0f}" for name in (PACKED, EQUAL)]
    spread = f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return [path.name, str(tokens), *speeds, spread]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.packed", description=__doc__)
    add_packages(parser)
    add_turns(parser, SENTENCES, REPEATS)
    arguments = parser.parse_args()
    print(f"{machine()}, {instructions()}\n", flush=True)
    rows = [compare(path, arguments.sentences, arguments.repeats) for path in arguments.packages]
    header = ["package", "tokens", f"tokens/s, {PACKED}", f"tokens/s, {EQUAL}", "ratio, median and range"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
