"""The examples of docs/history.md on a slice of the corpus English - Portuguese, all for the same time.

python -m training.examples.en_pt_slice CORPUS FOLDER writes train.en, train.pt, valid.en and valid.pt, and for each
example an experiment: that of number words with another text, more pieces, and some minutes of processor time.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from training.command import run
from training.config import ParallelText
from training.data.files import write_lines
from training.data.text import read_pair
from training.errors import TrainingError
from training.examples.variants import Changes, Settings, as_toml, read, variant

PAIRS, HELD_OUT = 20_000, 300
WORDS = range(3, 21)
"""Of either side of a pair."""
PIECES, MAX_TOKENS = 4000, 128
"""A pair of few words may have a long name of many pieces: as many as the models have positions."""
WARMUP = 100
SECONDS = 120
"""Of one core, for each."""
STEPS = 100_000
"""More than anything takes in that time."""
EXAMPLES = ("lstm_none", "gru_additive", "luong", "number_words", "universal", "universal_act", "unilm")


def on_slice(settings: Settings, folder: Path) -> Settings:
    """An experiment on number words, with the text of a folder in their place."""
    train, validation = (
        {side: str(folder / f"{part}.{language}") for side, language in (("source", "en"), ("target", "pt"))}
        for part in ("train", "valid")
    )
    changes: Changes = {
        "data": {"train": [train], "validation": validation, "max_tokens": MAX_TOKENS},
        "vocabulary": {"size": PIECES},
        "optimizer": {"warmup_steps": WARMUP, "cooldown_steps": 0},
        "training": {"max_steps": STEPS, "processor_seconds": SECONDS, "threads": 1},
        "validation": {"every_steps": STEPS, "sentences": HELD_OUT},
    }
    return variant(settings, changes)


def write_slice(corpus: Path, folder: Path) -> None:
    """The text of a folder. Raises TrainingError where the corpus is too small."""
    text = read_pair(ParallelText(source=corpus / "pairs.en", target=corpus / "pairs.pt"))
    pairs = zip(text.source, text.target, strict=True)
    kept = [pair for pair in pairs if all(len(side.split()) in WORDS for side in pair)][: PAIRS + HELD_OUT]
    if len(kept) < PAIRS + HELD_OUT:
        raise TrainingError(f"{corpus} has {len(kept):,} short pairs; {PAIRS + HELD_OUT:,} are needed")
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("en", "pt")):
        write_lines(folder / f"valid.{language}", [pair[side] for pair in kept[:HELD_OUT]])
        write_lines(folder / f"train.{language}", [pair[side] for pair in kept[HELD_OUT:]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where the corpus cannot be read or is too small."""
    parser = argparse.ArgumentParser("python -m training.examples.en_pt_slice", description=__doc__)
    parser.add_argument("corpus", type=Path, help="what python -m training.corpus wrote")
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)

    def work(console: Console) -> None:
        write_slice(options.corpus, options.out)
        for name in EXAMPLES:
            experiment = on_slice(read(name), options.out) | {"output": str(options.out / name)}
            (options.out / f"{name}.toml").write_text(as_toml(experiment), encoding="utf-8")
        console.print(f"{options.out} is ready: {PAIRS:,} pairs, {len(EXAMPLES)} experiments", highlight=False)

    return run(work)


if __name__ == "__main__":
    sys.exit(main())
