"""The commands of docs/history.md: what they train is experiments, and what they tell is what happened."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from bench.history.__main__ import Sides, of_trained
from bench.history.alignments import draw
from bench.history.depths import depths, filled
from bench.history.encoders import CLICKS, output
from bench.history.encoders import compare as compare_encoders
from bench.history.encoders import make as make_encoders
from bench.history.systems import SYSTEMS, System, compare, learnt, make, settings
from bench.measure import processor_seconds
from inspection.findings import InspectionError, Wanted
from inspection.inspect import inspect
from tests.models.test_universal import HALTING, LAYERS, model_of
from training.config import Experiment, read_experiment
from training.examples import click_log
from training.examples.number_words import make_pairs, write
from training.examples.variants import as_toml

STEPS = 30
SMALL = System(
    "small",
    "A small one",
    "gru_additive",
    {
        "vocabulary": {"size": 160},
        "model": {"width": 16, "score": "dot"},
        "optimizer": {"warmup_steps": 4, "cooldown_steps": 4},
        "training": {"max_steps": STEPS},
        "validation": {"every_steps": STEPS // 2, "sentences": 20},
        "checkpoints": {"every_steps": STEPS, "average": 1},
        "batches": {"tokens": 256},
    },
)


@pytest.mark.parametrize(("sliced", "minutes"), [(False, 10), (True, 2)], ids=["number words", "slice"])
@pytest.mark.parametrize("system", SYSTEMS, ids=[system.name for system in SYSTEMS])
def test_a_system_is_an_experiment_of_some_minutes(system: System, sliced: bool, minutes: int, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(as_toml(settings(system, tmp_path, tmp_path, sliced)), encoding="utf-8")
    experiment = read_experiment(file, Experiment)
    assert (experiment.training.processor_seconds, experiment.training.threads) == (60 * minutes, 1)
    assert experiment.optimizer.warmup_steps + experiment.optimizer.cooldown_steps <= experiment.training.max_steps


@pytest.mark.timeout(300)
def test_a_system_is_trained_exported_and_compared(tmp_path: Path) -> None:
    folder = tmp_path / SMALL.name
    write(tmp_path / "text", make_pairs(140, seed=3), 40)
    make(SMALL, folder, tmp_path / "text", sliced=False)
    run = learnt(folder)
    assert run.steps == STEPS and 0 < run.seconds < 600 and run.tokens_per_second > 0 and run.to_asked is None
    made = (folder / "package" / "manifest.json").stat().st_mtime_ns
    make(SMALL, folder, tmp_path / "text", sliced=False)
    assert (folder / "package" / "manifest.json").stat().st_mtime_ns == made, "it is there already"
    [row] = compare([SMALL], tmp_path, processor_seconds)
    assert row[0] == SMALL.title and row[2] == str(STEPS) and float(row[4]) < 99
    texts = [source for source, _ in make_pairs(40, seed=4)]
    name, *_, equal = of_trained(folder, texts, Sides(1, processor_seconds, "auto"))
    assert (name, equal) == (f"{SMALL.name}, 16", "40 of 40")

    found = [inspect(folder / "package", Wanted(text, beams=1)) for text in ("He saw two cars.", "I sold one new hat.")]
    names = ["one", "the other"]
    drawn = ElementTree.tostring(draw([found[0]] * 2, names), "unicode")
    assert all(name in drawn for name in names) and drawn.count("<image") == 2
    if found[0].texts != found[1].texts:
        with pytest.raises(InspectionError, match="take another text"):
            draw(found, names)


@torch.no_grad()
def test_depths_are_those_at_which_tokens_halt() -> None:
    """p_1 + ... + p_N > 0.99, or the last: for the source, from what its layer gets and gives."""
    model = model_of(HALTING)
    source, target = [*range(5, 22)], [3, 9, 8]
    of_source, of_target = depths(model, source, target)
    assert (len(of_source), len(of_target)) == (17, 3) and {*of_source, *of_target} <= set(range(1, LAYERS + 1))
    x, spent, expected = model.source_embedding[torch.tensor(source)], torch.zeros(17), torch.full((17,), LAYERS)
    for depth in range(1, LAYERS):
        entered = x + model.source_positions[:17] + model.depths[depth - 1]
        x = model.encoder[0](entered, torch.tensor([17]))
        spent += torch.sigmoid(entered @ model.encoder_halting.weight + model.encoder_halting.bias)
        expected = torch.where(spent > 0.99, expected.clamp(max=depth), expected)
    assert of_source == expected.tolist() and len(set(of_source)) > 1
    assert filled([1, 3, 0], 3).tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]


@pytest.mark.timeout(300)
def test_clicks_are_trained_exported_and_read(tmp_path: Path) -> None:
    click_log.write(tmp_path / "clicks", users=20, seed=3)
    make_encoders(tmp_path, [CLICKS])
    made = (output(tmp_path, CLICKS) / "package" / "manifest.json").stat().st_mtime_ns
    make_encoders(tmp_path, [CLICKS])
    assert (output(tmp_path, CLICKS) / "package" / "manifest.json").stat().st_mtime_ns == made, "it is there already"
    [[title, trained, served]] = compare_encoders(tmp_path, [CLICKS], processor_seconds)
    assert title.startswith("clicks") and all(float(rate.replace(",", "")) > 0 for rate in (trained, served))
