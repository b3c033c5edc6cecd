"""The example of the README, cut down to a minute, learns to translate."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.checkpoints import ROOT
from tests.training.experiments import write_config
from training.__main__ import main
from training.config import Experiment, read_experiment
from training.examples.number_words import english, make_pairs, portuguese, write

EXAMPLE = ROOT / "training" / "examples" / "number_words.toml"
PAIRS, HELD_OUT = 8000, 60


def test_the_example_is_an_experiment() -> None:
    assert read_experiment(EXAMPLE, Experiment).training.max_steps > 0


def test_it_learns_to_translate(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    pairs = make_pairs(PAIRS, seed=3)
    write(tmp_path / "text", pairs, HELD_OUT)
    file = write_config(
        tmp_path,
        vocabulary={"size": 240},
        model={"width": 64, "heads": 4, "ffn": 256},
        batches={"tokens": 1024},
        optimizer={"peak_learning_rate": 5e-3, "warmup_steps": 60, "cooldown_steps": 60},
        training={"max_steps": 240, "dropout": 0.0},
        validation={"every_steps": 120, "sentences": HELD_OUT},
        checkpoints={"every_steps": 120, "average": 1},
    )
    assert main([str(file)]) == 0
    scores = re.findall(r"(?:validation|last 1 checkpoints:) loss ([\d.]+), BLEU ([\d.]+)", capfd.readouterr().err)
    (early_loss, early), (_, late), (loss, final) = [(float(loss), float(score)) for loss, score in scores]
    assert loss < early_loss / 2
    assert final == pytest.approx(late, abs=3)  # the same weights, but for rounding
    assert final > early + 20  # the decoder has the weights of now, not those it was traced with
    assert final > 60


@pytest.mark.parametrize("name", ["number_words", "labelled_words", "click_log"])
def test_a_text_that_cannot_be_written_says_where(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"training.examples.{name}"]
    ran = subprocess.run([*command, "/dev/null"], cwd=ROOT, capture_output=True, text=True, check=False)
    told = "error: /dev/null cannot be written to (File exists); name another folder\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", told)
    subprocess.run([*command, str(tmp_path / "new" / "text")], cwd=ROOT, check=True)
    assert list((tmp_path / "new" / "text").iterdir())


@pytest.mark.parametrize(
    ("number", "words", "masculine", "feminine"),
    [
        (1, "one", "um", "uma"),
        (100, "one hundred", "cem", "cem"),
        (222, "two hundred and twenty-two", "duzentos e vinte e dois", "duzentas e vinte e duas"),
        (1100, "one thousand one hundred", "mil e cem", "mil e cem"),
        (2021, "two thousand and twenty-one", "dois mil e vinte e um", "duas mil e vinte e uma"),
        (500_340, "five hundred thousand three hundred and forty", *["quinhent{0}s mil trezent{0}s e quarenta"] * 2),
    ],
)
def test_numbers_are_written_as_people_do(number: int, words: str, masculine: str, feminine: str) -> None:
    assert english(number) == words
    assert (portuguese(number), portuguese(number, feminine=True)) == (masculine.format("o"), feminine.format("a"))


def test_held_out_sentences_are_not_learnt_from(tmp_path: Path) -> None:
    write(tmp_path, make_pairs(2000, seed=1), 500)
    held_out, learnt = (set((tmp_path / f"{name}.en").read_text().splitlines()) for name in ("valid", "train"))
    assert (len(held_out), len(learnt)) == (500, 1500)
    assert held_out.isdisjoint(learnt)
