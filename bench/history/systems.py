"""`python -m bench.history.systems FOLDER`: the systems of docs/history.md on number words, in one table.

Each is trained on one thread, until a validation has 99.9 BLEU, its last step is done or ten minutes of processor time
are over, and exported. What is in FOLDER already is not made again. Then all packages translate the text that was held
out, greedily, in turns. `--slice CORPUS` takes a slice of what `python -m training.corpus` wrote in place of number
words, and two minutes for each. See docs/history.md.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bench.history.serving import Took, serve
from bench.machine.noise import instructions
from bench.measure import processor_seconds, seconds
from bench.pages.markdown import machine, table
from models.checkpoint import load_checkpoint
from training.examples.en_pt_slice import on_slice, write_slice
from training.examples.number_words import HELD_OUT, PAIRS, SEED, make_pairs, write
from training.examples.variants import Changes, Settings, as_toml, read, variant
from training.loop.validation import bleu

ENOUGH, ASKED = 99.9, 99.0
"""BLEU at which a training ends, and that the table has the time of."""
EVERYWHERE: Changes = {
    "training": {"processor_seconds": 600, "threads": 1},
    "validation": {"every_steps": 100, "enough": ENOUGH},
}


TIMES = "validation/processor_seconds", "train/processor_seconds"
"""What a run tells TensorBoard of the processor time until then."""


class System(NamedTuple):
    """An experiment, and what is changed of it."""

    name: str
    """Also of its folder."""
    title: str
    """In the table."""
    example: str
    """Of training/examples."""
    changes: Changes = MappingProxyType({})
    steps: int | None = None
    """Most on number words, where the example's end long before ten minutes are over."""


SCORES = ("dot", "scaled_dot", "general", "projected", "location", "cosine")
LUONG = {"attends": "after", "input_feeding": True}
SYSTEMS = (
    System("rnn_none", "RNN", "lstm_none", {"model": {"cell": "rnn"}, "optimizer": {"peak_learning_rate": 1e-3}}, 2600),
    System("gru_none", "GRU, Cho et al.", "lstm_none", {"model": {"cell": "gru", "first_state": "projected"}}, 1200),
    System("lstm_none", "LSTM, Sutskever et al.", "lstm_none", steps=1000),
    System("rnn_additive", "RNN, additive", "gru_additive", {"model": {"cell": "rnn"}}),
    System("gru_additive", "GRU, additive, Bahdanau et al.", "gru_additive"),
    *(System(f"gru_{score}", f"GRU, {score}", "gru_additive", {"model": {"score": score}}) for score in SCORES),
    System("gru_concat", "GRU, concat, after, fed", "gru_additive", {"model": {"score": "concat", **LUONG}}),
    System("gru_window", "GRU, additive, window 4", "gru_additive", {"model": {"window": 4}}),
    System("luong", "LSTM, general, after, fed, Luong et al.", "luong"),
    System("transformer", "Transformer", "number_words"),
    System("universal", "universal Transformer", "universal"),
    System("universal_act", "the same, with ACT", "universal_act"),
    System("unilm", "UniLM", "unilm"),
    System("gpt2", "one stack, causal (as GPT-2)", "unilm", {"model": {"source_mask": "causal"}, "mixture": None}),
)


def settings(system: System, folder: Path, text: Path, sliced: bool) -> Settings:
    """Its experiment, written below a folder. sliced: the text is a slice of the corpus, else number words."""
    example = read(system.example)
    on_text = on_slice(example, text) if sliced else _on_number_words(example, text)
    if system.steps is not None and not sliced:
        on_text = variant(on_text, {"training": {"max_steps": system.steps}})
    return variant(on_text, system.changes) | {"output": str(folder)}


def _on_number_words(example: Settings, text: Path) -> Settings:
    train, validation = (
        {side: str(text / f"{part}.{language}") for side, language in (("source", "en"), ("target", "pt"))}
        for part in ("train", "valid")
    )
    on_text: Changes = {"data": {"train": [train], "validation": validation}}
    return variant(variant(example, on_text), EVERYWHERE)


def make(system: System, folder: Path, text: Path, sliced: bool) -> None:
    """Trains and exports it, in processes of their own, unless that is done."""
    experiment, model, package = folder / "experiment.toml", folder / "model", folder / "package"
    folder.mkdir(parents=True, exist_ok=True)
    experiment.write_text(as_toml(settings(system, folder, text, sliced)), encoding="utf-8")
    export = [str(model), "--samples", str(text / "valid.en"), "--out", str(package), "--quiet"]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    for module, arguments, made in (("training", [str(experiment)], model), ("export", export, package)):
        if not made.exists():
            subprocess.run([sys.executable, "-m", module, *arguments], check=True, env=alone)


@dataclass(frozen=True)
class Learnt:
    """How a training went."""

    steps: int
    seconds: float
    """Processor time of training and validating."""
    to_asked: float | None
    """Until a validation had ASKED."""
    tokens_per_second: float
    """Target tokens of training alone by second of processor time, the median of ten steps."""


def learnt(folder: Path) -> Learnt:
    """What a run told TensorBoard."""
    scores, tokens = told(folder, "validation/bleu", "train/target_tokens")
    validated, spent = told(folder, *TIMES)
    enough = [validated[step] for step, score in scores.items() if score >= ASKED]
    rates = [tokens[now] / (spent[now] - spent[before]) for before, now in undisturbed(validated, spent)]
    return Learnt(max(spent), spent[max(spent)], min(enough, default=None), statistics.median(rates))


def told(folder: Path, *names: str) -> list[dict[int, float]]:
    """Values by step of what a run told TensorBoard."""
    events = EventAccumulator(str(folder / "tensorboard"), {"scalars": 0})
    events.Reload()
    there = events.Tags()["scalars"]
    return [{event.step: event.value for event in (events.Scalars(name) if name in there else ())} for name in names]


def undisturbed(validated: Collection[int], spent: Collection[int]) -> list[tuple[int, int]]:
    """Steps that were told of one after the other, but for those that have the time of a validation between them."""
    return [pair for pair in itertools.pairwise(sorted(spent)) if pair[0] not in validated]


def compare(systems: Sequence[System], folder: Path, took: Took) -> list[list[str]]:
    """Rows of the table."""
    sources, references = (
        (folder / "text" / f"valid.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "pt")
    )
    folders = [folder / system.name for system in systems]
    rows = list[list[str]]()
    found = serve([each / "package" for each in folders], sources, took)
    for system, below, served in zip(systems, folders, found, strict=True):
        run = learnt(below)
        parameters = sum(each.numel() for each in load_checkpoint(below / "model").model.parameters())
        row = [
            *(system.title, f"{parameters / 1e6:.2f} M", f"{run.steps:,}", f"{run.seconds:.0f} s"),
            f"{bleu(served.translations, references):.1f}",
            "" if run.to_asked is None else f"{run.to_asked:.0f} s",
            *(f"{run.tokens_per_second:,.0f}", f"{served.tokens_per_second:,.0f}"),
        ]
        rows.append(row)
    return rows


def main() -> None:
    """Command line."""
    named = {system.name: system for system in SYSTEMS}
    parser = argparse.ArgumentParser(prog="python -m bench.history.systems", description=__doc__)
    parser.add_argument("folder", type=Path, help="of all that is trained and exported")
    parser.add_argument("--slice", type=Path, metavar="CORPUS", help="of which a slice is the text")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=named, help=f"these: {', '.join(named)}")
    parser.add_argument("--make", action="store_true", help="train and export what is missing, and measure nothing")
    parser.add_argument(
        "--processor-time", action="store_true", help="instead of the clock, on a machine with other work"
    )
    options = parser.parse_args()
    systems = [named[name] for name in options.only or named]
    text = options.folder / "text"
    if not text.exists():
        write(text, make_pairs(PAIRS, SEED), HELD_OUT) if options.slice is None else write_slice(options.slice, text)
    for system in systems:
        make(system, options.folder / system.name, text, options.slice is not None)
    if options.make:
        return
    print(f"{machine()}, {instructions()}\n", flush=True)
    header = ["system", "parameters", "steps", "processor time", "BLEU", f"to {ASKED:.0f} BLEU", "training", "serving"]
    print(table(header, compare(systems, options.folder, processor_seconds if options.processor_time else seconds)))


if __name__ == "__main__":
    main()
