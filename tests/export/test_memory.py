"""What export has in memory: its weights once, and no copies of them (`python -m bench.export_memory` has figures)."""

import tracemalloc
from pathlib import Path
from weakref import WeakSet

import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers

from engine.devices import session
from export import __main__ as command
from export.tracing.trace import trace
from export.weights.save import save
from export.weights.sinusoids import are_sinusoids
from models.positions import sinusoids
from tests.models.test_transformer import config, random_model

LARGE = config(source_vocab_size=60_000, target_vocab_size=60_000)


def test_weights_are_saved_and_opened_without_a_copy(tmp_path: Path) -> None:
    model = random_model(LARGE)
    graphs = trace(model)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    tracemalloc.start()
    try:
        files = save(graphs, tmp_path)
        contents = files.contents()
        loaded = [contents.graph(file.name) for file in tmp_path.glob("*.onnx")]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(loaded) == 2 and (tmp_path / "weights.bin").stat().st_size > 0.9 * weights
    assert most < weights / 2


def test_a_table_is_no_sinusoids_before_as_many_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = list[int]()

    def counted(positions: int, width: int) -> torch.Tensor:
        computed.append(positions)
        return sinusoids(positions, width)

    monkeypatch.setattr("export.weights.sinusoids.sinusoids", counted)
    assert not are_sinusoids(np.ones((100_000, 8), np.float32))
    assert max(computed) < 10
    table = sinusoids(300, 8).numpy()
    assert are_sinusoids(table)
    table[299, 7] += 1
    assert not are_sinusoids(table)


def test_transformers_is_gone_before_a_graph_is_loaded(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, made, beside = WeakSet[transformers.PreTrainedModel](), list[str](), list[int]()
    init, load = transformers.PreTrainedModel.__init__, session._load

    def counted(self: transformers.PreTrainedModel, *arguments: object, **options: object) -> None:
        init(self, *arguments, **options)
        models.add(self)
        made.append(type(self).__name__)

    def watched(*arguments: object) -> ort.InferenceSession:
        beside.append(len(models))
        return load(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(transformers.PreTrainedModel, "__init__", counted)
    monkeypatch.setattr(session, "_load", watched)
    arguments = [str(tiny_checkpoint), "--out", str(tmp_path / "package"), "--verify-samples", "1", "--quiet"]
    assert command.main(arguments) == 0
    assert "MarianMTModel" in made
    assert len(beside) > 4 and max(beside) == 0
