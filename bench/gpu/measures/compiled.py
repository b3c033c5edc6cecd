"""Part `compiled`: transformers with its decoder's step compiled: the best that a user could do, after a long wait.

Greedy search as `generate` does it by itself, with CUDA graphs. It does not compile beam search: there the whole
forward pass is compiled, without CUDA graphs, because reordering beams moves the cache.
"""

import os
import time
from collections.abc import Iterator, Sequence

from bench.gpu import sources
from bench.gpu.measures.throughput import Tokens, read_peer
from bench.gpu.plan import Cell, Findings, Plan
from bench.gpu.sides.huggingface import COMPILED, EAGER, HuggingFace, open_peer
from models.package.folder import Package

VARIANT = "static cache, compiled"
LATE = "there was no time left to compile it"


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields readings as long as there is time for one more."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(plan.work / "inductor")
    config = Package.open(plan.package("base", "fp16")).manifest.model
    theirs = open_peer(plan)
    ends, longest = time.monotonic() + plan.part_s, 0.0
    for cell in plan.sizes.compiled:
        started = time.monotonic()
        if ends - started < longest:
            yield cell.name, {VARIANT: {"error": LATE}}
            continue
        given = sources.of_length(config, cell.sentences, plan.sizes.source_tokens)
        yield cell.name, {VARIANT: _read(theirs, cell, given, plan)}
        longest = max(longest, time.monotonic() - started)


def _read(theirs: HuggingFace, cell: Cell, given: Sequence[Tokens], plan: Plan) -> Findings:
    if cell.num_beams == 1:
        return read_peer(theirs, cell, given, COMPILED, plan)
    with theirs.compiled():
        return read_peer(theirs, cell, given, EAGER["static cache"], plan)
