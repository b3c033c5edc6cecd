"""The graphs that score given targets say what PyTorch says, whatever is scored together."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from engine.devices.session import CPU
from engine.errors import NotOffered
from engine.logits.target_graphs import OUTPUT_TOKENS, PASS_TOKENS, TargetGraphs, together
from export.tracing.trace import trace
from export.verification.compare_numbers import attention_error, score_error
from export.verification.reference import log_probs
from export.weights.save import save
from models.config import ModelConfig
from models.decoding import Decoding
from models.package.graph_files import GraphFiles
from models.transformer import Transformer
from tests.models.test_transformer import FAMILIES, VARIANTS, config, random_model

ATOL = 1e-4
SHAPES = {name: VARIANTS[name] for name in ("recurrent, pre-norm", "two vocabularies, no output bias")}
SHAPES["learned positions"] = VARIANTS["pre-norm, learned positions, untied output"]
SHAPES["relative positions"] = FAMILIES["relative positions, as T5"]
LONG = config(max_positions=700)
PREFIX = (130, 17, 3)
SOURCE = (5, 9, 100, 0)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_scores_and_attention_are_those_of_pytorch(shape: ModelConfig, tmp_path: Path) -> None:
    model = random_model(shape)
    graphs = save(trace(model, scoring=True), tmp_path)
    assert score_error(model, graphs, CPU) < ATOL
    assert attention_error(model, graphs, CPU) < ATOL


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_model(LONG)


@pytest.fixture(scope="module")
def graphs(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> GraphFiles:
    return save(trace(model, scoring=True), tmp_path_factory.mktemp("graphs"))


def test_long_and_short_targets_after_a_prefix(model: Transformer, graphs: GraphFiles) -> None:
    """More than a pass takes, more than one look-up takes, exactly as many, and one token."""
    chance = random.Random(5)
    lengths = (1, 600, 30, 2, PASS_TOKENS - 2, OUTPUT_TOKENS, 7, OUTPUT_TOKENS + 1, 5)
    targets = [tuple(chance.choices(range(130), k=length)) for length in lengths]
    with torch.no_grad():
        hidden = model.encode(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]))[0].numpy()
    told = list(TargetGraphs(graphs, CPU).score(hidden, PREFIX, targets))
    found = {index: scores for part in told for index, scores in part.items()}
    assert sum(map(len, told)) == len(found) == len(targets)
    assert len(told) > sum(lengths) / PASS_TOKENS, "others cannot have their turn"
    for index, target in enumerate(targets):
        expected = log_probs(model, SOURCE, [*PREFIX, *target[:-1]]).numpy()[len(PREFIX) - 1 :]
        np.testing.assert_allclose(found[index], expected[np.arange(len(target)), target], atol=ATOL, rtol=0)


def test_a_package_without_the_graphs(graphs: GraphFiles) -> None:
    older = replace(graphs, spec=graphs.spec.model_copy(update={"scoring": None}))
    with pytest.raises(NotOffered, match="the score of a given target; export the checkpoint again"):
        next(TargetGraphs(older, CPU).score(np.zeros((3, LONG.width), np.float32), PREFIX, [(1, 2)]))


def test_a_graph_that_fails_is_one_requests_affair(graphs: GraphFiles) -> None:
    scoring = graphs.spec.scoring
    assert scoring is not None
    other = scoring.model_copy(update={"log_probs": scoring.target, "target": graphs.spec.encoder})
    spec = graphs.spec.model_copy(update={"scoring": other, "source_attention": graphs.spec.decoder})
    given, hidden = TargetGraphs(replace(graphs, spec=spec), CPU), np.zeros((3, LONG.width), np.float32)
    with pytest.raises(NotOffered, match="the score of a given target"):
        next(given.score(hidden, PREFIX, [(1, 2)]))
    with pytest.raises(NotOffered, match="attention"):
        next(given.look(hidden, PREFIX, [(1, 2)], Decoding(with_attention=True)))
    with pytest.raises(NotOffered, match="attention"):
        given.source_attention(SOURCE)


@pytest.mark.parametrize("name", ["states", "cross_key0", "self_key1"])
def test_so_is_one_that_gives_other_shapes(graphs: GraphFiles, tmp_path: Path, name: str) -> None:
    """Though it says that they are as they must be: an engine would fail over them, with all its requests."""
    folder = tmp_path / "graphs"
    shutil.copytree(graphs.folder, folder)
    model = onnx.load(folder / "target.onnx", load_external_data=False)
    for node in model.graph.node:
        node.input[:] = [f"{name}_whole" if one == name else one for one in node.input]
        node.output[:] = [f"{name}_whole" if one == name else one for one in node.output]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "first"))
    axis = 2 if name.startswith("cross_key") else 1
    model.graph.node.append(onnx.helper.make_node("Gather", [f"{name}_whole", "first"], [name], axis=axis))
    (folder / "target.onnx").write_bytes(model.SerializeToString())
    given, hidden = TargetGraphs(replace(graphs, folder=folder), CPU), np.zeros((3, LONG.width), np.float32)
    with pytest.raises(NotOffered, match="the score of a given target"):
        next(given.score(hidden, PREFIX, [(1, 2)]))


def test_targets_of_like_length_are_together() -> None:
    lengths = random.Random(1).choices([1, 2, 9, 40, 300], k=60)
    runs = list(together(lengths))
    assert sorted(index for run in runs for index in run) == list(range(60))
    assert all(len(run) == 1 or len(run) * max(lengths[index] for index in run) <= PASS_TOKENS for run in runs)
    assert len(runs) <= lengths.count(300) + 40 * 60 / PASS_TOKENS + 1
    assert list(together([])) == []
