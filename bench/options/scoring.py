"""`python -m bench.options.scoring [PACKAGE]`: how fast translations are scored, beside CTranslate2's `score_batch`.

FLORES-200 dev, English to Portuguese, token ids in and log-probabilities out, two workers of one thread each, in
turn. See docs/benchmarks.md.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.cpu.sides.ctranslate2 import force_avx512
from bench.cpu.work import WORKERS
from bench.flags.compared import add_packages, add_turns
from bench.machine.noise import instructions
from bench.measure import alternate, seconds
from bench.pages.markdown import machine, table
from bench.sentences import flores
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.request import Event, Score, Scored
from models.package.folder import Package
from models.tokenizers.sentencepiece_pair import load_vocabulary

ROOT = Path(__file__).parent.parent.parent
ZOO = ROOT / "models" / "zoo" / "en-pt"
SENTENCES, REPEATS = 997, 9

Pairs = list[tuple[tuple[int, ...], tuple[int, ...]]]
"""Sources and targets as token ids, end tokens included."""


def pairs_of(package: Package, sentences: int) -> Pairs:
    """Both sides of the test set, so many of them."""
    tokenizer, end_id = package.tokenizer(), package.manifest.graphs.vocabulary.end_id
    sources = (tuple(tokenizer.encode(text)) for text in flores("en")[:sentences])
    targets = ((*tokenizer.encode_target(text), end_id) for text in flores("pt")[:sentences])
    return list(zip(sources, targets, strict=True))


@contextmanager
def ours(package: Package, pairs: Pairs) -> Iterator[Any]:
    """Our engine: gives the log-probabilities of every target."""
    model = Loadable.of(package)
    with load(model, CPU, Limits(workers=WORKERS)) as runner:

        def score() -> list[tuple[float, ...]]:
            answers = [Future[Event]() for _ in pairs]
            for (source, target), answer in zip(pairs, answers, strict=True):
                request = Score(source, answer.set_result, targets=(target,), fed_ids=model.rules.fed_ids)
                runner.submit(request)
            events = [answer.result() for answer in answers]
            return [event.log_probs[0] for event in events if isinstance(event, Scored)]

        yield score


@contextmanager
def theirs(compute_type: str, pairs: Pairs, folder: Path) -> Iterator[Any]:
    """CTranslate2 on the checkpoint of the package: the same. Its batches are by tokens, as it recommends."""
    force_avx512()
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(ZOO)).convert(str(folder), quantization="float32", force=True)
    piece_of = {token: piece for piece, token in load_vocabulary(ZOO / "vocab.json").items()}
    sources = [[piece_of[token] for token in source] for source, _ in pairs]
    targets = [[piece_of[token] for token in target[:-1]] for _, target in pairs]
    translator = ctranslate2.Translator(str(folder), compute_type=compute_type, inter_threads=WORKERS, intra_threads=1)

    def score() -> list[tuple[float, ...]]:
        results = translator.score_batch(sources, targets, max_batch_size=1024, batch_type="tokens")
        return [tuple(result.log_probs) for result in results]

    yield score


def compare(package: Package, folder: Path, sentences: int, repeats: int) -> list[str]:
    """A row of the table. folder: for what CTranslate2 makes of the checkpoint."""
    pairs, precision = pairs_of(package, sentences), package.manifest.graphs.precision.weights
    tokens = sum(len(target) for _, target in pairs)
    compute_type = "int8" if precision == "int8" else "float32"
    with ours(package, pairs) as our_score, theirs(compute_type, pairs, folder) as their_score:
        both = zip(our_score(), their_score(), strict=True)
        apart = [abs(a - b) for found, expected in both for a, b in zip(found, expected, strict=True)]
        sides = {"ours": partial(seconds, our_score), "theirs": partial(seconds, their_score)}
        series = alternate(sides, repeats)
    ratios = sorted(b / a for a, b in zip(series["ours"].values, series["theirs"].values, strict=True))
    return [
        package.manifest.name,
        f"{tokens / series['ours'].median:,.0f}",
        f"{tokens / series['theirs'].median:,.0f}",
        f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        f"{sum(apart) / len(apart):.2g}",
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.scoring", description=__doc__)
    add_packages(parser)
    add_turns(parser, SENTENCES, REPEATS)
    chosen = parser.parse_args()
    print(f"{machine()}, {instructions()}\n", flush=True)
    header = ["package", "tokens/s", "CTranslate2", "ratio, median and range", "mean difference of a log-probability"]
    with TemporaryDirectory() as folder:
        rows = [
            compare(Package.open(path), Path(folder, path.name), chosen.sentences, chosen.repeats)
            for path in chosen.packages
        ]
    print(table(header, rows))


if __name__ == "__main__":
    main()
