"""`python -m bench.history.encoders FOLDER`: how fast BERT and the clicks of docs/history.md are trained and served.

Each experiment is trained on one thread and exported, with the text that its example makes. What is in FOLDER already
is not made again. Then all packages read their texts that were held out, in turns, one worker each. Tokens are those
that are read, special ones included. See docs/history.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.history.serving import REPEATS, ROWS, Took
from bench.history.systems import TIMES, told, undisturbed
from bench.machine.noise import instructions
from bench.measure import alternate, processor_seconds, seconds
from bench.pages.markdown import machine, table
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.request import Encode, Encoded, Event
from models.encoding.encoding import Encoding
from models.package.folder import Package
from training.config import read_experiment
from training.data.batches import in_order
from training.data.text import read_lines
from training.encoders.config import EncoderExperiment
from training.encoders.run import read
from training.encoders.text import Vocabulary
from training.examples.variants import EXAMPLES

BEGINNING = "bert"
EXPERIMENTS = {BEGINNING: "BERT", "bert_kinds": "the same, labels of texts", "bert_words": "the same, labels of words"}
CLICKS = "bst"
TITLES = EXPERIMENTS | {CLICKS: "clicks, sum_sqrt"}


def run(*command: str) -> str:
    """A module in a process of its own, on one thread. Returns what it printed."""
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command], check=True, env=alone, stdout=subprocess.PIPE, text=True
    ).stdout


def make(folder: Path, names: Collection[str]) -> None:
    """Trains and exports what is missing of these."""
    for name in names:
        make_model = train_clicks if name == CLICKS else partial(train, name=name)
        make_model(folder)
        package = output(folder, name) / "package"
        if not package.exists():
            arguments = "--samples", str(texts(folder, name)), "--out", str(package), "--quiet"
            run("export", str(output(folder, name) / "model"), *arguments)


def train(folder: Path, name: str) -> None:
    """One of EXPERIMENTS. All but the first begin with what that one has learnt."""
    if name != BEGINNING:
        train(folder, BEGINNING)
    if not (words := folder / "labelled-words").exists():
        run("training.examples.labelled_words", str(words))
    file = folder / f"{name}.toml"
    file.write_text((EXAMPLES / file.name).read_text(encoding="utf-8").replace('"artifacts/', f'"{folder}/'))
    if not (output(folder, name) / "model").exists():
        run("training.encoders", str(file))


def train_clicks(folder: Path) -> None:
    """What it tells is kept."""
    if not (clicks := folder / "clicks").exists():
        run("training.examples.click_log", str(clicks))
    out = output(folder, CLICKS)
    if not (out / "model").exists():
        told = run("training.examples.bst", str(clicks), "--pooling", "sum_sqrt", "--out", str(out))
        (out / "told.txt").write_text(told, encoding="utf-8")


def output(folder: Path, name: str) -> Path:
    """Where an example writes."""
    return folder / name.replace("_", "-")


def texts(folder: Path, name: str) -> Path:
    """That were held out."""
    return output(folder, name) / "held-out.txt" if name == CLICKS else folder / "labelled-words" / "valid.txt"


def trained_tokens_per_second(folder: Path, name: str) -> str:
    """Of processor time, validations not included: the tokens of a batch over the median of a step."""
    if name == CLICKS:
        return (output(folder, CLICKS) / "told.txt").read_text(encoding="utf-8").split()[-2]
    experiment = read_experiment(folder / f"{name}.toml", EncoderExperiment)
    vocabulary = Vocabulary.load(experiment.start or experiment.output / "vocabulary")
    corpus = read(experiment, vocabulary).training
    lengths = corpus.source.lengths
    batch = statistics.fmean(int(lengths[rows].sum()) for rows in in_order(corpus, experiment.batches.tokens))
    validated, spent = told(experiment.output, *TIMES)
    step = statistics.median(
        [(spent[now] - spent[before]) / (now - before) for before, now in undisturbed(validated, spent)]
    )
    return f"{batch / step:,.0f}"


class Reading:
    """The labels of some texts by a package, ROWS at once; without a head, their vectors."""

    def __init__(self, folder: Path, lines: Path, stack: ExitStack) -> None:
        package = Package.open(folder)
        head, tokenizer = package.classifier(), package.tokenizer()
        self._encoding = Encoding() if head is None else head.encoding
        self._sources = [tuple(tokenizer.encode(line)) for line in read_lines(lines) if line]
        self.tokens = sum(map(len, self._sources))
        self._runner = stack.enter_context(load(Loadable.of(package), CPU, Limits(rows=ROWS, workers=1)))

    def __call__(self) -> None:
        waiting = deque[Future[Event]]()
        for source in self._sources:
            answer = Future[Event]()
            self._runner.submit(Encode(source, answer.set_result, encoding=self._encoding))
            waiting.append(answer)
        for answer in waiting:
            assert isinstance(answer.result(), Encoded)


def compare(folder: Path, names: Sequence[str], took: Took) -> list[list[str]]:
    """Rows of the table."""
    with ExitStack() as stack:
        packages = {name: output(folder, name) / "package" for name in names}
        work = {name: Reading(package, texts(folder, name), stack) for name, package in packages.items()}
        series = alternate({name: partial(took, each) for name, each in work.items()}, REPEATS)
    return [
        [TITLES[name], trained_tokens_per_second(folder, name), f"{work[name].tokens / series[name].median:,.0f}"]
        for name in names
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.history.encoders", description=__doc__)
    parser.add_argument("folder", type=Path, help="of all that is trained and exported")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=TITLES, help=f"these: {', '.join(TITLES)}")
    parser.add_argument(
        "--processor-time", action="store_true", help="instead of the clock, on a machine with other work"
    )
    options = parser.parse_args()
    folder, names = options.folder.resolve(), options.only or [*TITLES]
    folder.mkdir(parents=True, exist_ok=True)
    make(folder, names)
    print(f"{machine()}, {instructions()}\n", flush=True)
    took = processor_seconds if options.processor_time else seconds
    print(table(["system", "training", "serving"], compare(folder, names, took)))


if __name__ == "__main__":
    main()
