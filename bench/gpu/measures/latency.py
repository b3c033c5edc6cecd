"""Part `latency`: one sentence at a time, beam 4 and greedy, engine and all, without gRPC."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from bench.gpu import sources
from bench.gpu.plan import Findings, Plan, search_name
from bench.gpu.sides.huggingface import EAGER, open_peer
from bench.gpu.sides.ours import Ours
from bench.measure import percentile

WARM_UPS = 2
THEIR_REPEATS = 5
BEAMS = (4, 1)


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields milliseconds from handing in a sentence to having its translation."""
    sizes = plan.sizes
    ours = Ours(plan, "base", "fp16", max(sizes.source_tokens, sizes.target_tokens))
    given = sources.of_length(ours.config, 1, sizes.source_tokens)
    found: dict[int, Findings] = {}
    for num_beams in BEAMS:
        with ours.engine(num_beams) as engine:
            calls = times(partial(engine.translate, given, num_beams, sizes.target_tokens), sizes.latency_repeats)
        found[num_beams] = {"num_beams": num_beams, "tokens": sizes.target_tokens, "ours": calls}
        yield search_name(num_beams), found[num_beams]
    theirs = open_peer(plan)
    for num_beams in BEAMS:
        for name, variant in EAGER.items():
            call = partial(theirs.translate, given, num_beams, sizes.target_tokens, variant)
            calls = times(call, min(THEIR_REPEATS, sizes.latency_repeats))
            found[num_beams][f"transformers, {name}"] = calls
            yield search_name(num_beams), found[num_beams]


def times(call: Callable[[], object], repeats: int) -> Findings:
    """Percentiles, in milliseconds."""
    for _ in range(WARM_UPS):
        call()
    seconds = list[float]()
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return {f"p{percent}_ms": percentile(seconds, percent) * 1000 for percent in (50, 99)}
