"""`python -m bench.history.depths FOLDER TEXT --out FILE`: how deep each token of a text goes, and of its translation.

Of a model with adaptive halting, in FOLDER/model and FOLDER/package: filled are the depths that become part of a token.
See docs/history.md.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.flags.values import new_file
from inspection.drawing import heat_maps
from inspection.findings import Wanted
from inspection.inspect import inspect
from inspection.page import as_file
from models.checkpoint import load_checkpoint
from models.transformer import Transformer

APART = "→"
"""Between the tokens of the text and those of the translation."""


@torch.no_grad()
def depths(model: Transformer, source_ids: list[int], target_ids: list[int]) -> tuple[list[int], list[int]]:
    """N of every token of the source, and of what is fed for the target (`models.halting`)."""
    model.train()  # which is what counts; nothing is dropped out
    starts = model.encode_source(torch.tensor([source_ids]), torch.tensor([len(source_ids)]))[1]
    model.decode_target(starts, torch.tensor([len(source_ids)]), torch.tensor([target_ids]))
    of_source, of_target = (_whole(side.take_cost()) for side in (model.encoder_halting, model.decoder_halting))
    return of_source, of_target


def _whole(costs: Tensor) -> list[int]:
    """N of N + R, with R in (0, 1]."""
    return [int(cost) - 1 for cost in costs.ceil()]


def filled(of_tokens: list[int], deepest: int) -> NDArray[np.float32]:
    """1 at the depths of each token, else 0 [depths, tokens]."""
    return (np.arange(1, deepest + 1)[:, None] <= np.array(of_tokens)).astype(np.float32)


def main() -> int:
    """Returns 0, or 2 where nothing halts."""
    parser = argparse.ArgumentParser(prog="python -m bench.history.depths", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the model and its package")
    parser.add_argument("text")
    parser.add_argument("--out", type=new_file, required=True, metavar="FILE", help="the picture (SVG)")
    options = parser.parse_args()
    model = load_checkpoint(options.folder / "model").model
    if not isinstance(model, Transformer) or not model.config.halting:
        print(f"error: {options.folder / 'model'} has no adaptive halting", file=sys.stderr)
        return 2
    findings = inspect(options.folder / "package", Wanted(options.text, beams=1))
    source_ids = findings.package.tokenizer().encode(options.text)
    fed = [findings.tree.token, *findings.hypotheses[0].token_ids[:-1]]
    of_source, of_target = depths(model, source_ids, fed)
    print(f"source: {np.mean(of_source):.2f} in the mean, target: {np.mean(of_target):.2f}")
    deepest = max(model.config.encoder_layers, model.config.decoder_layers)
    weights = filled([*of_source, 0, *of_target], deepest)
    rows, columns = [f"depth {depth}" for depth in range(1, deepest + 1)], [*findings.source, APART, *findings.target]
    picture = heat_maps("How deep tokens go", weights[None, None], rows, columns, [""])
    options.out.write_text(as_file(picture), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
