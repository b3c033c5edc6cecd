"""`python -m bench.options.alignment [PACKAGE ...]`: how much later a reply comes with an alignment.

FLORES-200 dev, one sentence after the other, texts in and whole replies out, as a server has them (`dragoman.local`),
one worker, by turns without and with each option. See docs/benchmarks.md.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.flags.compared import add_packages, add_turns
from bench.flags.values import beams, whole
from bench.machine.noise import instructions
from bench.measure import alternate, percentile, seconds
from bench.pages.markdown import machine, table
from bench.sentences import flores
from dragoman.local import Translator
from models.package.folder import Package

PLAIN = "neither"
SENTENCES, REPEATS = 100, 9
QUICK = {"sentences": 25, "repeats": 3}
Reply = Callable[[str], object]


def replies(translator: Translator, num_beams: int, max_new_tokens: int) -> dict[str, Reply]:
    """By the option's name, what gives the reply to a text with it."""
    plain = partial(
        translator.translate, num_beams=num_beams, max_new_tokens=max_new_tokens, no_cache=True, timeout_s=600
    )
    return {
        PLAIN: plain,
        "with_alignment": partial(plain, with_alignment=True),
        "with_attention": partial(plain, with_attention=True),
        "coverage_penalty": partial(plain, coverage_penalty=0.2),
    }


def p50(reply: Reply, texts: Sequence[str]) -> float:
    """Milliseconds of the reply to a text, median of all."""
    return 1000 * percentile([seconds(partial(reply, text)) for text in texts], 50)


def compare(path: Path, sentences: int, num_beams: int, max_new_tokens: int, repeats: int) -> list[list[str]]:
    """Rows of the table of a package."""
    manifest = Package.open(path).manifest
    texts = flores(manifest.source_languages[0])[:sentences]
    with Translator(path, workers=1) as translator:
        asked = replies(translator, num_beams, max_new_tokens)
        series = alternate({name: partial(p50, reply, texts) for name, reply in asked.items()}, repeats)
    rows = list[list[str]]()
    for name, of_one in series.items():
        ratios = sorted(b / a for a, b in zip(series[PLAIN].values, of_one.values, strict=True))
        ratio = "" if name == PLAIN else f"{percentile(ratios, 50):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        rows.append([manifest.name, name, f"{of_one.median:.2f}", ratio])
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.alignment", description=__doc__)
    add_packages(parser)
    parser.add_argument("--num-beams", type=beams, default=4, metavar="N")
    parser.add_argument("--max-new-tokens", type=whole, default=128, metavar="N")
    add_turns(parser, SENTENCES, REPEATS)
    quick = " and ".join(f"--{name} {number}" for name, number in QUICK.items())
    parser.add_argument("--quick", action="store_true", help=f"{quick}: a minute")
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
    print(f"{machine()}, {instructions()}\n", flush=True)
    rows = [
        row
        for path in args.packages
        for row in compare(path, args.sentences, args.num_beams, args.max_new_tokens, args.repeats)
    ]
    print(table(["package", "option", "p50 of a reply, ms", "ratio, median and range"], rows))


if __name__ == "__main__":
    main()
