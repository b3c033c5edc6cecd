"""A recurrent model from its text to answers: trained, exported, served, one minute's form of docs/history.md."""

import re
from pathlib import Path

import pytest
import torch

from dragoman.errors import DragomanError
from dragoman.local import Translator
from export.__main__ import main as export
from models.checkpoint import load_checkpoint
from tests.checkpoints import ROOT
from tests.training.experiments import refusal, settings, toml
from training.__main__ import main
from training.config import Experiment, read_experiment
from training.examples import en_pt_slice
from training.examples.number_words import make_pairs, write
from training.examples.variants import as_toml, read

PAIRS, HELD_OUT = 8000, 60
EXAMPLES = {
    "gru_additive": "recurrent",
    "lstm_none": "recurrent",
    "luong": "recurrent",
    "universal": "transformer",
    "universal_act": "transformer",
    "unilm": "prefix",
}
MODEL = {"architecture": "recurrent", "width": 64, "score": "additive", "max_positions": 64}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_an_experiment(name: str) -> None:
    experiment = read_experiment(ROOT / "training" / "examples" / f"{name}.toml", Experiment)
    assert experiment.model is not None and experiment.model.architecture == EXAMPLES[name]


@pytest.mark.parametrize("name", en_pt_slice.EXAMPLES)
def test_on_the_slice_too_and_with_all_positions(name: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    on_slice = en_pt_slice.on_slice(read(name), tmp_path) | {"output": str(tmp_path)}
    file.write_text(as_toml(on_slice), encoding="utf-8")
    experiment = read_experiment(file, Experiment)
    assert experiment.model is not None and experiment.model.max_positions == experiment.data.max_tokens
    assert experiment.optimizer.warmup_steps + experiment.optimizer.cooldown_steps <= experiment.training.max_steps


@pytest.mark.timeout(600)
def test_it_learns_is_exported_and_served(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    write(tmp_path / "text", make_pairs(PAIRS, seed=3), HELD_OUT)
    experiment = settings(
        tmp_path,
        vocabulary={"size": 240},
        batches={"tokens": 1024},
        optimizer={"peak_learning_rate": 1.5e-2, "warmup_steps": 60, "cooldown_steps": 60},
        training={"max_steps": 240, "dropout": 0.0, "scheduled_sampling": 0.1},
        validation={"every_steps": 240, "sentences": HELD_OUT},
        checkpoints={"every_steps": 240, "average": 1},
    )
    file = tmp_path / "experiment.toml"
    lines = [f"{key} = {toml(value)}" for key, value in (experiment | {"model": MODEL}).items()]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert main([str(file)]) == 0
    [(loss, bleu)] = re.findall(r"last 1 checkpoints: loss ([\d.]+), BLEU ([\d.]+)", capfd.readouterr().err)
    assert float(loss) < 1 and float(bleu) > 60

    checkpoint = load_checkpoint(tmp_path / "run" / "model")
    assert (checkpoint.config.architecture, checkpoint.source_languages) == ("recurrent", ("en",))
    package = tmp_path / "package"
    arguments = [str(tmp_path / "run" / "model"), "--out", str(package), "--name", "numbers", "--quiet"]
    samples = ["--samples", str(tmp_path / "text" / "valid.en"), "--verify-samples", "8"]
    assert export([*arguments, *samples]) == 0, capfd.readouterr().err

    texts = (tmp_path / "text" / "valid.en").read_text(encoding="utf-8").splitlines()[:20]
    with Translator(package, workers=1) as translator:
        together = translator.translate(texts, num_beams=3)
        for text, translation in zip(texts, together, strict=True):
            alone = translator.translate(text, num_beams=3, no_cache=True)
            assert (alone.text, alone.score) == (translation.text, translation.score)
        with pytest.raises(DragomanError, match="score"):
            translator.score(texts[0], ["um"])


def test_only_a_recurrent_decoder_samples(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = refusal(capfd, tmp_path, training={"scheduled_sampling": 0.2})
    assert 'training.scheduled_sampling is for models of the architecture "recurrent"' in said
