"""`python -m bench.history.alignments TEXT PACKAGE ... --out FILE`: where several systems look in a text, side by side.

Of those that translate it alike, greedily: the mean of each one's last layer. See docs/history.md.
"""

import argparse
import sys
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from bench.flags.values import new_file, package_at
from engine.errors import EngineError
from inspection.drawing import heat_maps
from inspection.findings import Findings, InspectionError, Wanted
from inspection.inspect import inspect
from inspection.page import as_file
from models.package.checked import PackageError
from models.tokenizers.tokenizer import TokenizerError


def draw(found: Sequence[Findings], names: Sequence[str]) -> Element:
    """A map for each. Raises InspectionError where two differ in what they say, or one does not tell where it looks."""
    first = found[0]
    for name, one in zip(names, found, strict=True):
        if one.texts[0] != first.texts[0]:
            raise InspectionError(f"{name} says {one.texts[0]!r}, {names[0]} {first.texts[0]!r}: take another text")
        if one.target_attention is None:
            raise InspectionError(f"{name} does not tell where it looks: leave it out")
    # One stack looks at what it has said as well.
    looks = [one.target_attention[-1].mean(0) for one in found if one.target_attention is not None]
    of_text = [look[:, : len(one.source)] for one, look in zip(found, looks, strict=True)]
    maps = [look / look.sum(1, keepdims=True) for look in of_text]
    return heat_maps(first.wanted.text, np.stack(maps)[None], first.target, first.source, names)


def main() -> int:
    """Returns 0, or 2 where there is nothing to draw: one line on standard error says why."""
    parser = argparse.ArgumentParser(prog="python -m bench.history.alignments", description=__doc__)
    parser.add_argument("text")
    parser.add_argument("packages", nargs="+", type=package_at, metavar="PACKAGE", help="named as the folder it is in")
    parser.add_argument("--out", type=new_file, required=True, metavar="FILE", help="the picture (SVG)")
    options = parser.parse_args()
    try:
        found = [inspect(package, Wanted(options.text, beams=1)) for package in options.packages]
        picture = draw(found, [package.parent.name for package in options.packages])
    except (InspectionError, PackageError, TokenizerError, EngineError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    options.out.write_text(as_file(picture), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
