"""Part `throughput`: tokens a second of batches that start together, against transformers and CTranslate2.

All sides translate the same random sources of one length to targets of one length, with the same random weights: no
target can end early. Encoding counts. Of transformers the best variant of each cell counts.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from bench.gpu import sources
from bench.gpu.plan import Cell, Findings, Plan
from bench.gpu.sides.ctranslate2 import Ctranslate2
from bench.gpu.sides.huggingface import EAGER, HuggingFace, open_peer
from bench.gpu.sides.ours import Ours
from bench.measure import Series

MEASURED_S = 0.5

Tokens = tuple[int, ...]


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields each cell's tokens a second, and once more with CTranslate2's."""
    sizes = plan.sizes
    ours = Ours(plan, "base", "fp16", max(sizes.source_tokens, sizes.target_tokens))
    theirs = open_peer(plan)
    table: dict[Cell, Findings] = {}
    for cell in sizes.cells:
        given = sources.of_length(ours.config, cell.sentences, sizes.source_tokens)
        table[cell] = {"num_beams": cell.num_beams, "sentences": cell.sentences, "rows": cell.rows}
        table[cell]["ours"] = read_ours(ours, cell, given, plan)
        table[cell]["transformers"] = {
            name: read_peer(theirs, cell, given, variant, plan) for name, variant in EAGER.items()
        }
        yield cell.name, table[cell]
    for cell, reading in _ctranslate2(plan, ours):
        table[cell]["ctranslate2"] = reading
        yield cell.name, table[cell]
    require_ours(table)


def read(translate: Callable[[], Sequence[Sequence[object]]], repeats: int) -> Findings:
    """Tokens a second and milliseconds of a batch: the median, after a warm-up. An error in their place, if any.

    repeats: least number of readings. Short ones are taken until MEASURED_S have passed.
    """
    try:
        translate()
        seconds, tokens = list[float](), 0
        while len(seconds) < repeats or (repeats > 1 and sum(seconds) < MEASURED_S):
            started = time.perf_counter()
            tokens = sum(map(len, translate()))
            seconds.append(time.perf_counter() - started)
    except Exception as error:  # another side's failure is a finding too
        return failure(error)
    median = Series(seconds).median
    return {"tokens_per_s": tokens / median, "batch_ms": median * 1000, "tokens": tokens}


def failure(error: Exception) -> Findings:
    """In place of a reading."""
    return {"error": f"{type(error).__name__}: {error}"[:500]}


def read_ours(ours: Ours, cell: Cell, given: Sequence[Tokens], plan: Plan) -> Findings:
    """Through the scheduler."""
    with ours.engine(cell.rows) as engine:
        target_tokens = plan.sizes.target_tokens
        return read(partial(engine.targets, given, cell.num_beams, target_tokens), plan.sizes.repeats)


def require_ours(table: Mapping[Cell, Findings]) -> None:
    """The peers' failures are theirs; ours fail the part, when everything is measured."""
    errors = [f"{cell.name}: {found['ours']['error']}" for cell, found in table.items() if "error" in found["ours"]]
    if errors:
        raise RuntimeError("; ".join(errors))


def read_peer(
    theirs: HuggingFace, cell: Cell, given: Sequence[Tokens], variant: Mapping[str, Any], plan: Plan
) -> Findings:
    """The reading of one variant of transformers."""
    target_tokens = plan.sizes.target_tokens
    return read(partial(theirs.translate, given, cell.num_beams, target_tokens, variant), plan.sizes.repeats)


def _ctranslate2(plan: Plan, ours: Ours) -> Iterator[tuple[Cell, Findings]]:
    """Where it is installed, and can use the device."""
    try:
        theirs = Ctranslate2(plan, "base")
    except Exception as error:
        yield plan.sizes.cells[0], failure(error)
        return
    for cell in plan.sizes.cells:
        given = sources.of_length(ours.config, cell.sentences, plan.sizes.source_tokens)
        yield cell, read_ctranslate2(theirs, cell, given, plan)


def read_ctranslate2(theirs: Ctranslate2, cell: Cell, given: Sequence[Tokens], plan: Plan) -> Findings:
    """The reading of CTranslate2."""
    pieces = theirs.pieces(given)
    return read(partial(theirs.translate, pieces, cell.num_beams, plan.sizes.target_tokens), plan.sizes.repeats)
