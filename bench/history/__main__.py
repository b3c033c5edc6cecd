"""`python -m bench.history`: recurrent packages that attend beside a loop in PyTorch over the same weights.

A GRU that attends to its source (Bahdanau et al. 2015), greedily, in turns, by the clock or by processor time: with
random weights, 32 sentences at once; or with `--trained FOLDER ... --text FILE` systems that `bench.history.systems`
has trained, which translate a text. `--cores N`: N workers, and N threads of PyTorch, which may be slower than one: see
both. `--packages PACKAGE ... --text FILE` translates a text by packages alone, of any systems, in the same way. See
docs/history.md.
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, get_args

import torch

from bench.flags.values import file_at, folder_at, package_at, whole
from bench.history.loop import Tokens, by_pytorch
from bench.history.serving import REPEATS, ROWS, Took, serve
from bench.machine.noise import instructions
from bench.measure import alternate, processor_seconds, seconds
from bench.pages.markdown import machine, table
from engine.devices.session import CPU
from engine.loading.load import Kernels, Limits, Loadable, load
from engine.offline import decode
from engine.runner import Runner
from engine.targets import TargetRules
from export.native.graphs import why_standard_only, with_native
from export.tracing.trace import trace
from export.weights.save import save
from models.architectures.recurrent.config import RecurrentConfig
from models.architectures.recurrent.model import Recurrent
from models.checkpoint import load_checkpoint
from models.decoding import Decoding
from models.package.folder import Package
from models.package.manifest import GenerationDefaults

SOURCE, TARGET = (8, 40), 40
"""Of random sentences: least and most tokens of a source, the end token included; tokens of every target."""
VOCABULARY = 8000

Sources = Sequence[Tokens]


class Sides(NamedTuple):
    """How both are measured."""

    cores: int
    """Workers of the package, threads of PyTorch."""
    took: Took
    kernels: Kernels
    """Of the package."""


def shape(width: int) -> RecurrentConfig:
    """One layer on each side."""
    return RecurrentConfig(
        architecture="recurrent",
        source_vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        width=width,
        encoder_layers=1,
        decoder_layers=1,
        max_positions=128,
        scale_embedding=True,
        pad_id=VOCABULARY - 1,
        end_id=0,
        decoder_start_id=VOCABULARY - 1,
    )


def some_sources() -> Sources:
    """Of many lengths."""
    chance = random.Random(1)
    lengths = [chance.randint(*SOURCE) for _ in range(ROWS)]
    return [(*chance.choices(range(1, VOCABULARY - 1), k=length - 1), 0) for length in lengths]


def by_package(runner: Runner, rules: TargetRules, sources: Sources, decoding: Decoding) -> list[Tokens]:
    """The tokens of an engine, whose workers share the sentences."""
    answers = decode(runner, rules, [(source, decoding) for source in sources])
    return [answer.hypotheses[0].token_ids for answer in answers]


def compare(model: Recurrent, loadable: Loadable, sources: Sources, decoding: Decoding, sides: Sides) -> list[str]:
    """Of a row of the table, all but what it is of."""
    model.eval()
    least, most = decoding.min_new_tokens, decoding.max_new_tokens
    with load(loadable, CPU, Limits(rows=ROWS, workers=sides.cores), kernels=sides.kernels) as runner:
        work = {
            "package": partial(by_package, runner, loadable.rules, sources, decoding),
            "pytorch": partial(by_pytorch, model, sources, ROWS, least, most),
        }
        ours, theirs = work["package"](), work["pytorch"]()
        series = alternate({name: partial(sides.took, side) for name, side in work.items()}, REPEATS)
    pairs = zip(series["pytorch"].values, series["package"].values, strict=True)
    ratios = sorted(theirs / ours for theirs, ours in pairs)
    tokens = sum(map(len, ours))
    return [
        *(f"{tokens / series[name].median:,.0f}" for name in work),
        f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        f"{sum(our == their for our, their in zip(ours, theirs, strict=True))} of {len(sources)}",
    ]


def of_random_weights(width: int, sides: Sides) -> list[str]:
    """A row of the table."""
    torch.manual_seed(1)
    model, decoding = Recurrent(shape(width)), Decoding(min_new_tokens=TARGET, max_new_tokens=TARGET)
    with TemporaryDirectory() as folder:
        graphs = trace(model.eval())
        missing = why_standard_only(model, "fp32")
        package = save(graphs if missing else with_native(graphs, model), Path(folder))
        loadable = Loadable(package, GenerationDefaults(max_new_tokens=TARGET))
        return [f"random, {width}", *compare(model, loadable, some_sources(), decoding, sides)]


def of_trained(folder: Path, texts: Sequence[str], sides: Sides) -> list[str]:
    """A row of the table. Raises SystemExit if the model is none that the loop has."""
    model, package = load_checkpoint(folder / "model").model, Package.open(folder / "package")
    if not isinstance(model, Recurrent) or not model.attends or model.config.input_feeding:
        raise SystemExit(f"{folder} is no recurrent model that attends and is not fed what it found")
    loadable, tokenizer = Loadable.of(package), package.tokenizer()
    decoding = replace(loadable.generation.decoding(), num_beams=1)
    sources = [tuple(tokenizer.encode(text)) for text in texts]
    return [f"{folder.name}, {model.config.width}", *compare(model, loadable, sources, decoding, sides)]


def of_packages(folders: Sequence[Path], texts: Sequence[str], took: Took) -> list[list[str]]:
    """Rows of their table."""
    found = zip(folders, serve(folders, texts, took), strict=True)
    return [
        [folder.name, f"{served.tokens:,}", f"{served.tokens_per_second:,.0f}", f"{len(texts) / served.seconds:,.0f}"]
        for folder, served in found
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.history", description=__doc__)
    parser.add_argument(
        "--widths", nargs="+", type=whole, default=[128, 256, 512], help="of models with random weights"
    )
    parser.add_argument("--cores", type=whole, default=1, help="of both sides, without --packages (default: 1)")
    parser.add_argument(
        "--trained", nargs="+", type=folder_at, default=[], metavar="FOLDER", help="with model and package"
    )
    parser.add_argument("--packages", nargs="+", type=package_at, default=[], help="of several systems")
    parser.add_argument("--kernels", choices=get_args(Kernels), default="auto", help="our own operators, if not off")
    parser.add_argument("--text", type=file_at, help="of as many lines as are to be translated")
    parser.add_argument(
        "--processor-time", action="store_true", help="instead of the clock, on a machine with other work"
    )
    options = parser.parse_args()
    if (options.trained or options.packages) and options.text is None:
        parser.error("--trained and --packages want a --text")
    texts = options.text.read_text(encoding="utf-8").splitlines() if options.text else []
    took = processor_seconds if options.processor_time else seconds
    torch.set_num_threads(options.cores)
    print(f"{machine()}, {instructions()}\n", flush=True)
    if options.packages:
        header = ["package", "target tokens", "tokens/s", "texts/s"]
        print(table(header, of_packages(options.packages, texts, took)))
        return
    sides = Sides(options.cores, took, options.kernels)
    header = ["weights, width", "package, tokens/s", "PyTorch, tokens/s", "ratio, median and range", "equal targets"]
    if options.trained:
        rows = [of_trained(folder, texts, sides) for folder in options.trained]
    else:
        rows = [of_random_weights(width, sides) for width in options.widths]
    print(table(header, rows))


if __name__ == "__main__":
    main()
