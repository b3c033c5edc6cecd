"""Small training runs: a text, a vocabulary and a model that two cores train in seconds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.__main__ import main
from training.examples.number_words import make_pairs, write
from training.loop import state

STEP = 2
"""Steps between two checkpoints."""
LAST = 40
"""Steps of a run."""


def settings(folder: Path, **sections: Mapping[str, object] | None) -> dict[str, Any]:
    """An experiment below a folder. `sections` change keys of its sections; None leaves a section out."""
    text = folder / "text"
    if not text.exists():
        write(text, make_pairs(120, seed=3), held_out=20)
    files = {name: {"source": f"{text}/{name}.en", "target": f"{text}/{name}.pt"} for name in ("train", "valid")}
    base: dict[str, Any] = {
        "output": str(folder / "run"),
        "data": {"train": [files["train"]], "validation": files["valid"], "max_tokens": 64},
        "vocabulary": {"source_language": "en", "target_language": "pt", "size": 160},
        "model": {
            "width": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "heads": 2,
            "ffn": 32,
            "max_positions": 64,
        },
        "batches": {"tokens": 256},
        "optimizer": {"warmup_steps": 4},
        "training": {"max_steps": LAST, "device": "cpu", "threads": 1, "precision": "fp32"},
        "validation": {"every_steps": 2 * STEP, "sentences": 0},
        "checkpoints": {"every_steps": STEP, "average": 2},
    }
    for name, changes in sections.items():
        if changes is None:
            base.pop(name)
        else:
            base[name] = base.get(name, {}) | changes
    return base


def write_config(folder: Path, **sections: Mapping[str, object] | None) -> Path:
    """The same, as a file."""
    lines = [f"{key} = {toml(value)}" for key, value in settings(folder, **sections).items()]
    file = folder / "experiment.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def toml(value: Any) -> str:
    """A TOML value."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def run(folder: Path, **sections: Mapping[str, object] | None) -> Path:
    """Trains, and returns the folder of what that wrote."""
    assert main([str(write_config(folder, **sections))]) == 0
    return folder / "run"


def refusal(capfd: pytest.CaptureFixture[str], folder: Path, **sections: Mapping[str, object] | None) -> str:
    """What training says when it does not begin or go on."""
    assert main([str(write_config(folder, **sections))]) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    return error


def weights(run: Path, step: int = LAST) -> dict[str, Tensor]:
    """What a checkpoint holds."""
    model: dict[str, Tensor] = state.load(run / "checkpoints" / f"step-{step:08}.pt")["model"]
    return model


def same(some: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    """To the bit."""
    return all(torch.equal(some[name], others[name]) for name in some.keys() | others.keys())
