"""Part `nllb`: tokens a second at the size of NLLB-200-distilled-600M, greedy, against transformers and CTranslate2.

As in part `throughput`. Every target begins with the language's token, which is given, and counts on all sides.
"""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from bench.gpu import sources
from bench.gpu.measures import compiled
from bench.gpu.measures.throughput import Tokens, failure, read_ctranslate2, read_ours, read_peer, require_ours
from bench.gpu.plan import Cell, Findings, Plan
from bench.gpu.sides import ctranslate2
from bench.gpu.sides.ctranslate2 import Ctranslate2
from bench.gpu.sides.huggingface import COMPILED, EAGER, open_peer
from bench.gpu.sides.ours import Ours
from bench.measure import seconds
from bench.packages.families import NLLB_600M, FamilyShape, write_family
from bench.packages.unverified import write_package

MODEL = "nllb"
TOY = FamilyShape(
    "m2m_100",
    {
        "vocab_size": 33000,  # a few more than the tokenizer's, all languages counted
        "d_model": 64,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "max_position_embeddings": 64,
    },
)
COMPILE_S = 45.0
"""Compiling is not begun with less time than that."""


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the seconds that files took, and tokens a second, again after each side."""
    ends, cell = time.monotonic() + plan.part_s, plan.sizes.cells[0]
    yield from make(plan)
    ours = Ours(plan, MODEL, "fp16", max(plan.sizes.source_tokens, plan.sizes.target_tokens))
    given = sources.of_length(ours.config, cell.sentences, plan.sizes.source_tokens)
    found: Findings = {"num_beams": cell.num_beams, "sentences": cell.sentences, "rows": cell.rows}
    found |= {"ours": read_ours(ours, cell, given, plan), "transformers": {}}
    yield cell.name, found
    theirs = open_peer(plan, MODEL)
    for name, variant in EAGER.items():
        found["transformers"][name] = read_peer(theirs, cell, given, variant, plan)
        yield cell.name, found
    found["ctranslate2"] = _ctranslate2(ours, cell, given, plan)
    yield cell.name, found
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(plan.work / "inductor")
    late = ends - time.monotonic() < COMPILE_S
    reading = {"error": compiled.LATE} if late else read_peer(theirs, cell, given, COMPILED, plan)
    found["transformers"][compiled.VARIANT] = reading
    yield cell.name, found
    require_ours({cell: found})


def make(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Writes the checkpoint, and then, side by side, the package and CTranslate2's files. Yields seconds.

    What is there already, from a run before, is not made again.
    """
    # Forked, because this process has imported everything and computed nothing yet.
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        yield "checkpoint", {"seconds": pool.submit(_checkpoint, plan).result()}
        converted = pool.submit(_converted, plan)
        yield "package", {"seconds": pool.submit(_package, plan).result()}
        if converted.exception() is None:  # else the side says so itself
            yield "CTranslate2's files", {"seconds": converted.result()}


def _checkpoint(plan: Plan) -> float:
    shape = TOY if plan.toy else NLLB_600M
    folder = plan.checkpoint(MODEL)
    if folder.exists():
        return 0.0
    return seconds(lambda: write_family(folder, shape, plan.zoo, torch.float16))


def _package(plan: Plan) -> float:
    target = plan.package(MODEL, "fp16")
    if target.exists():
        return 0.0
    return seconds(lambda: write_package(plan.checkpoint(MODEL), MODEL, target, "fp16", "fused"))


def _converted(plan: Plan) -> float:
    return seconds(lambda: ctranslate2.convert(plan, MODEL))


def _ctranslate2(ours: Ours, cell: Cell, given: Sequence[Tokens], plan: Plan) -> Findings:
    """Where it is installed, and can use the device."""
    try:
        theirs = Ctranslate2(plan, MODEL, ours.generation.forced_begin_id)
    except Exception as error:
        return failure(error)
    return read_ctranslate2(theirs, cell, given, plan)
