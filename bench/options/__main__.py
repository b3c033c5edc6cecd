"""`python -m bench.options [PACKAGE ...]`: what options cost, and sampling beside CTranslate2's.

FLORES-200 dev, English to Portuguese, token ids in and out, one worker of one thread on each side, all sides by turns
in one process. Speeds are target tokens in a second of processor time, so that other work on the machine matters less;
ratios are medians of those within a turn. See docs/benchmarks.md.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cpu.sides.ctranslate2 import force_avx512
from bench.cpu.sides.ours import answers, count
from bench.cpu.work import MAX_TOKENS
from bench.flags.compared import add_packages, add_turns
from bench.machine.noise import instructions
from bench.measure import alternate
from bench.options.constraints import SEED, ZOO, drawn
from bench.pages.markdown import machine, table
from bench.sentences import flores
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.sentencepiece_pair import load_vocabulary

SENTENCES, REPEATS, ROWS = 320, 9, 32
"""Sentences are decoded so many at a time."""
TOP_P = 0.9

GREEDY, PENALTIES, SAMPLING, SAMPLING_K = "greedy", "penalties", "top_p 0.9", "top_p 0.9, top_k 50"
BEAM, PHRASES = "beam 4", "beam 4, must_include"
THEIRS, THEIRS_K = "CTranslate2, top_p 0.9", "CTranslate2, top_p 0.9, top_k 50"
TOP_K = 50
COMPARED = (
    (PENALTIES, GREEDY, 0.85),
    (SAMPLING, GREEDY, 0.7),
    (SAMPLING_K, GREEDY, 0.7),
    (SAMPLING, THEIRS, 1.0),
    (SAMPLING_K, THEIRS_K, 1.0),
    (PHRASES, BEAM, 0.6),
)
"""One side, another, and the ratio that was asked for."""

Side = Callable[[], float]
"""A turn: target tokens in a second of processor time."""


def ours(package: Package, sentences: int, closing: ExitStack) -> dict[str, Side]:
    """The sides that are our engine."""
    tokenizer, model, chance = package.tokenizer(), Loadable.of(package), random.Random(SEED)
    sources = [tuple(tokenizer.encode(text)) for text in flores("en")[:sentences]]
    phrases = [drawn(reference, chance, tokenizer) for reference in flores("pt")[:sentences]]
    wanted = [tuple(tuple(tokenizer.encode_target(phrase)) for phrase in some) for some in phrases]
    greedy, beam = Decoding(max_new_tokens=MAX_TOKENS, num_beams=1), Decoding(max_new_tokens=MAX_TOKENS, num_beams=4)
    sampled = replace(greedy, do_sample=True, top_p=TOP_P)
    penalties = replace(greedy, no_repeat_ngram_size=3, repetition_penalty=1.2)
    numbers = range(len(sources))
    decodings = {
        GREEDY: [greedy] * len(sources),
        PENALTIES: [penalties] * len(sources),
        SAMPLING: [replace(sampled, top_k=0, seed=number) for number in numbers],
        SAMPLING_K: [replace(sampled, top_k=TOP_K, seed=number) for number in numbers],
        BEAM: [beam] * len(sources),
        PHRASES: [replace(beam, must_include=of_sentence) for of_sentence in wanted],
    }
    runners = {beams: closing.enter_context(load(model, CPU, Limits(ROWS * beams, 1))) for beams in (1, 4)}

    def translate(of_sources: list[Decoding]) -> int:
        asked = list(zip(sources, of_sources, strict=True))
        return count(answers(runners[of_sources[0].num_beams], model.rules, asked))

    return {name: partial(tokens_a_second, partial(translate, chosen)) for name, chosen in decodings.items()}


def theirs(compute_type: str, package: Package, sentences: int, folder: Path) -> dict[str, Side]:
    """CTranslate2 samples from the same part of the distribution, on the checkpoint of the package."""
    force_avx512()
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    if not folder.exists():
        TransformersConverter(str(ZOO)).convert(str(folder), quantization="float32")
    piece_of = {token: piece for piece, token in load_vocabulary(ZOO / "vocab.json").items()}
    tokenizer = package.tokenizer()
    sources = [[piece_of[token] for token in tokenizer.encode(text)] for text in flores("en")[:sentences]]
    translator = ctranslate2.Translator(str(folder), compute_type=compute_type, inter_threads=1, intra_threads=1)

    def translate(top_k: int) -> int:
        results = translator.translate_batch(
            sources,
            max_batch_size=ROWS,
            max_decoding_length=MAX_TOKENS,
            beam_size=1,
            sampling_topk=top_k,
            sampling_topp=TOP_P,
            return_scores=True,
        )
        return sum(len(result.hypotheses[0]) + 1 for result in results)

    sides = {THEIRS: 0, THEIRS_K: TOP_K}
    return {name: partial(tokens_a_second, partial(translate, top_k)) for name, top_k in sides.items()}


def tokens_a_second(translate: Callable[[], int]) -> float:
    """Of processor time, of all threads of this process."""
    began = time.process_time()
    tokens = translate()
    return tokens / (time.process_time() - began)


def compare(package: Package, folder: Path, sentences: int, repeats: int) -> list[list[str]]:
    """Rows of the table."""
    compute_type = "int8" if package.manifest.graphs.precision.weights == "int8" else "float32"
    with ExitStack() as closing:
        sides = ours(package, sentences, closing) | theirs(compute_type, package, sentences, folder)
        series = alternate(sides, repeats)
    rows = []
    for name, other, asked in COMPARED:
        ratios = sorted(a / b for a, b in zip(series[name].values, series[other].values, strict=True))
        rates = f"{series[name].median:,.0f}", f"{series[other].median:,.0f}"
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        rows.append([package.manifest.name, name, other, *rates, ratio, f"{asked:.2f}"])
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options", description=__doc__)
    add_packages(parser)
    add_turns(parser, SENTENCES, REPEATS)
    chosen = parser.parse_args()
    print(f"{machine()}, {instructions()}\n", flush=True)
    header = ["package", "side", "beside", "tokens/s", "the other's", "ratio, median and range", "asked"]
    with TemporaryDirectory() as folder:
        rows = [
            row
            for path in chosen.packages
            for row in compare(Package.open(path), Path(folder, "ctranslate2"), chosen.sentences, chosen.repeats)
        ]
    print(table(header, rows))


if __name__ == "__main__":
    main()
