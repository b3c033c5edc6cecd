"""Systems of docs/history.md learn to read numbers: from nothing, and in less than a minute."""

import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from tests.training.experiments import settings, toml
from training.__main__ import main
from training.examples.number_words import english, portuguese, write

NUMBERS, HELD_OUT = 4000, 60
RECURRENT: dict[str, object] = {"architecture": "recurrent", "width": 64, "max_positions": 64}
STACKED: dict[str, object] = {"width": 64, "heads": 4, "ffn": 256, "max_positions": 64}
SHARED = STACKED | {"encoder_layers": 2, "decoder_layers": 2, "shared_layers": True, "depth_signal": True}
ONE_STACK: dict[str, object] = STACKED | {"architecture": "prefix", "layers": 2}
SYSTEMS: Mapping[str, tuple[int, float, Mapping[str, object]]] = {
    "Bahdanau": (80, 1e-2, RECURRENT | {"score": "additive"}),
    "Luong": (80, 1e-2, RECURRENT | {"cell": "lstm", "score": "general", "attends": "after", "input_feeding": True}),
    "Transformer": (160, 4e-3, STACKED | {"encoder_layers": 1, "decoder_layers": 1}),
    "universal Transformer": (280, 3e-3, SHARED),
    "with adaptive halting": (320, 3e-3, SHARED | {"halting": True}),
    "UniLM": (240, 4e-3, ONE_STACK),
}
"""Steps, peak learning rates and shapes."""
TOKENS = {"recurrent": 1024}
"""Of a batch, where half of it is not enough."""
MIXTURES = {"UniLM": {"causal": 0.2, "cloze": 0.2}}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("system", SYSTEMS)
def test_it_learns_to_read_numbers(system: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    steps, rate, model = SYSTEMS[system]
    numbers = random.Random(3).sample(range(10_000), NUMBERS + HELD_OUT)
    write(tmp_path / "text", [(english(number), portuguese(number)) for number in numbers], HELD_OUT)
    experiment = settings(
        tmp_path,
        vocabulary={"size": 100},
        batches={"tokens": TOKENS.get(str(model.get("architecture")), 512)},
        optimizer={"peak_learning_rate": rate, "warmup_steps": steps // 4, "cooldown_steps": steps // 3},
        training={"max_steps": steps, "dropout": 0.0},
        validation={"every_steps": steps, "sentences": HELD_OUT},
        checkpoints={"every_steps": steps, "average": 1},
    )
    file = tmp_path / "experiment.toml"
    experiment |= {"model": model} | ({"mixture": MIXTURES[system]} if system in MIXTURES else {})
    lines = [f"{key} = {toml(value)}" for key, value in experiment.items()]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert main([str(file)]) == 0
    [bleu] = re.findall(r"last 1 checkpoints: loss [\d.]+, BLEU ([\d.]+)", capfd.readouterr().err)
    assert float(bleu) > 95
