"""The systems of docs/history.md on a slice of the corpus English - Portuguese, for about the same time.

python -m training.examples.en_pt_slice CORPUS FOLDER writes train.en, train.pt, valid.en and valid.pt, and for each
system an experiment: that of number words with another text, more pieces, and as many steps as take some minutes.
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
WARMUP, COOLDOWN = 100, 200
STEPS = {
    "lstm_none": 300,
    "gru_additive": 450,
    "luong": 450,
    "number_words": 450,
    "universal": 450,
    "universal_act": 380,
    "unilm": 380,
}
"""By the names of the experiments."""


def experiment(name: str, folder: Path) -> Settings:
    """That of number words, on the text of a folder."""
    train, validation = (
        {side: str(folder / f"{part}.{language}") for side, language in (("source", "en"), ("target", "pt"))}
        for part in ("train", "valid")
    )
    changes: Changes = {
        "data": {"train": [train], "validation": validation, "max_tokens": MAX_TOKENS},
        "vocabulary": {"size": PIECES},
        "optimizer": {"warmup_steps": WARMUP, "cooldown_steps": COOLDOWN},
        "training": {"max_steps": STEPS[name]},
        "validation": {"every_steps": STEPS[name], "sentences": HELD_OUT},
    }
    return variant(read(name), changes) | {"output": str(folder / name)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where the corpus cannot be read or is too small."""
    parser = argparse.ArgumentParser("python -m training.examples.en_pt_slice", description=__doc__)
    parser.add_argument("corpus", type=Path, help="what python -m training.corpus wrote")
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)

    def work(console: Console) -> None:
        corpus, out = options.corpus, options.out
        text = read_pair(ParallelText(source=corpus / "pairs.en", target=corpus / "pairs.pt"))
        pairs = zip(text.source, text.target, strict=True)
        kept = [pair for pair in pairs if all(len(side.split()) in WORDS for side in pair)][: PAIRS + HELD_OUT]
        if len(kept) < PAIRS + HELD_OUT:
            raise TrainingError(f"{corpus} has {len(kept):,} short pairs; {PAIRS + HELD_OUT:,} are needed")
        out.mkdir(parents=True, exist_ok=True)
        for side, language in enumerate(("en", "pt")):
            write_lines(out / f"valid.{language}", [pair[side] for pair in kept[:HELD_OUT]])
            write_lines(out / f"train.{language}", [pair[side] for pair in kept[HELD_OUT:]])
        for name in STEPS:
            (out / f"{name}.toml").write_text(as_toml(experiment(name, out)), encoding="utf-8")
        console.print(f"{out} is ready: {PAIRS:,} pairs, {len(STEPS)} experiments", highlight=False)

    return run(work)


if __name__ == "__main__":
    sys.exit(main())
