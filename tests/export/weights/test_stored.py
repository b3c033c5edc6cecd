"""Graphs that use a checkpoint's own weights file: the same weights, bit for bit, and the same tokens."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from bench.sentences import heldout
from engine.devices.session import CPU, open_session
from engine.loading.load import Loadable
from export import __main__ as command
from export.native.graphs import native_graphs
from export.tracing.graphs import Graphs, NativeModels, ScoringModels
from export.tracing.trace import trace
from export.weights.save import save, save_beside
from export.weights.stored import StoredWeights, point
from kernels.library import LibraryError, open_library
from models.checkpoint import CheckpointError, load_checkpoint
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from models.positions import sinusoids
from tests.checkpoints import ROOT
from tests.models.zoo.aligners import aligner
from tests.models.zoo.test_zoo import SENTENCES
from training.decoding import TargetLimits, open_translating

MODELS = sorted(file.parent for file in (ROOT / "models" / "zoo").glob("*-*/config.json"))
DTYPES = [torch.float32, torch.float16, torch.bfloat16]

Array = NDArray[np.float32]


def numbers(rows: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Weights [rows, 16] of a checkpoint in this precision."""
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(seed)).to(dtype)


def write_weights(file: Path, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A weights file; its header's length makes offsets that are multiples of nothing but 2."""
    tensors = {
        name: numbers(rows, dtype, seed) for seed, (name, rows) in enumerate({"a": 32, "b": 32, "c": 33}.items())
    }
    save_file(tensors, file, metadata={"format": "pt"})
    return tensors


def model(table: Array, joined: Array, positions: Array) -> ir.Model:
    """A graph that looks up in a table and multiplies with it, and multiplies with joined weights."""
    tape = ir.tape.Tape()
    weights = [
        tape.initializer(ir.tensor(array, name=name))
        for name, array in (("table", table), ("joined", joined), ("positions", positions))
    ]
    ids = ir.Value(name="ids", shape=ir.Shape([3]), type=ir.TensorType(ir.DataType.INT64))
    rows = tape.op("Gather", [weights[0], ids])
    outputs = [
        tape.op("Add", [rows, tape.op("Gather", [weights[2], ids])]),
        tape.op("Gemm", [rows, weights[0]], {"transB": 1}),
        tape.op("Gemm", [rows, weights[1]], {"transB": 1}),
    ]
    for index, output in enumerate(outputs):
        output.name, output.type = f"out{index}", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([ids], outputs, nodes=tape.nodes, initializers=tape.initializers, opset_imports={"": 21}, name="g")
    return ir.Model(graph, ir_version=10)


def run(file: Path) -> list[Array]:
    outputs: list[Array] = ort.InferenceSession(file).run(None, {"ids": np.array([0, 7, 32])})
    return outputs


def padded(tensor: torch.Tensor, rows: int, filler: float) -> Array:
    """In fp32, filled up to so many rows."""
    array: Array = torch.nn.functional.pad(tensor.float(), (0, 0, 0, rows - len(tensor)), value=filler).numpy()
    return array


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("filler", [0.0, -1e4])
def test_a_graph_computes_the_same_with_weights_joined_padded_and_widened(
    tmp_path: Path, dtype: torch.dtype, filler: float
) -> None:
    if dtype == torch.bfloat16 and filler:
        pytest.skip("bf16 has no -10000, see test_a_weight_that_the_file_does_not_have_is_refused")
    tensors = write_weights(tmp_path / "model.safetensors", dtype)
    joined = torch.cat([tensors["a"], tensors["b"]]).float().numpy()
    graph = model(padded(tensors["c"], 40, filler), joined, sinusoids(40, 16).numpy())
    ir.save(graph, tmp_path / "own.onnx")
    point(graph, StoredWeights(tmp_path / "model.safetensors"))
    ir.save(graph, tmp_path / "pointing.onnx")
    assert (tmp_path / "pointing.onnx").stat().st_size < (tmp_path / "own.onnx").stat().st_size
    for expected, found in zip(run(tmp_path / "own.onnx"), run(tmp_path / "pointing.onnx"), strict=True):
        assert expected.tobytes() == found.tobytes()


def test_a_weight_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    tensors = write_weights(file, torch.bfloat16)
    table, joined = padded(tensors["c"], 40, 0.0), torch.cat([tensors["a"], tensors["b"]]).float().numpy()
    positions = sinusoids(40, 16).numpy()
    other = joined.copy()
    other[-1, -1] = np.nextafter(other[-1, -1], np.float32(9))  # in its last bit
    waves = positions.copy()
    waves[3, 3] = np.nextafter(waves[3, 3], np.float32(9))
    for name, damaged in (
        ("joined", model(table, other, positions)),
        ("positions", model(table, joined, waves)),
        ("table", model(padded(tensors["c"], 40, -1e4), joined, positions)),  # bf16 has no -10000
        ("table", model(np.concatenate([table[:-1], joined[:1]]), joined, positions)),
    ):
        with pytest.raises(CheckpointError, match=rf"does not have {name} as the graph needs it.*--out"):
            point(damaged, StoredWeights(file))


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with pytest.raises(CheckpointError, match="no safetensors file"):
        StoredWeights(file)
    file.write_bytes(b"\x80\x02weights of another kind")
    with pytest.raises(CheckpointError, match="no safetensors file"):
        StoredWeights(file)
    save_file({"a": torch.ones(2), "b": torch.ones(2, dtype=torch.float16)}, file)
    with pytest.raises(CheckpointError, match=r"2 types.*--out"):
        StoredWeights(file)


# The command line


def test_a_checkpoint_folder_becomes_a_package(tiny_checkpoint: Path, tiny_package: Package, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "tiny"))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for _ in range(2):  # the second replaces what the first made
        assert command.main([str(folder), "--in-place", "--verify-samples", "2"]) == 0
        after = {file.name: file.read_bytes() for file in folder.iterdir()}
        assert after.keys() - before.keys() >= {"encoder.onnx", "decoder.onnx", "manifest.json"}
        assert all(name.endswith((".onnx", ".json")) for name in after.keys() - before.keys())
        assert all(after[name] == content for name, content in before.items())
    manifest = Package.open(folder).manifest
    assert manifest.weights == "model.safetensors"
    own = tiny_package.manifest
    assert (manifest.name, manifest.model, manifest.tokenizer) == (own.name, own.model, own.tokenizer)
    for graph in ("encoder.onnx", "decoder.onnx"):
        assert constants(folder / graph, tmp_path) == constants(tiny_package.folder / graph, tmp_path)


def test_a_checkpoint_beside_a_package_is_not_replaced_with_it(
    tiny_package: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(tiny_package.folder, tmp_path / "tiny"))
    (folder / "config.json").write_text("{}")
    assert command.main([str(MODELS[0]), "--out", str(folder), "--verify-samples", "1"]) == 2
    assert "has a checkpoint (config.json)" in capsys.readouterr().err
    assert Package.open(folder).sha256 == tiny_package.sha256


# The zoo


@pytest.fixture(scope="module", params=MODELS, ids=lambda folder: folder.name)
def zoo_folder(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture(scope="module")
def traced(zoo_folder: Path) -> Graphs:
    model = load_checkpoint(zoo_folder).transformer
    return trace(model, scoring=True).with_native(native_graphs(model))


@pytest.fixture(scope="module")
def fresh(zoo_folder: Path, traced: Graphs, tmp_path_factory: pytest.TempPathFactory) -> GraphFiles:
    """What an export would write now: graphs and weights of a package of its own, and in `beside` the other graphs."""
    folder = tmp_path_factory.mktemp(zoo_folder.name)
    assert traced.native is not None and traced.scoring is not None and traced.source_attention is not None
    target, log_probs = (model.clone() for model in traced.scoring.models.values())
    scoring = ScoringModels(target, log_probs, traced.scoring.attention)
    encoder, decoder, named = (model.clone() for model in traced.native.models.values())
    native = NativeModels(traced.native.spec, encoder, decoder, traced.native.logits.clone(), named)
    cloned = replace(traced, encoder=traced.encoder.clone(), decoder=traced.decoder.clone(), scoring=scoring)
    cloned = replace(cloned, source_attention=traced.source_attention.clone())
    files = save(cloned.with_native(native), folder)
    (folder / "beside").mkdir()
    save_beside(traced, folder / "beside", StoredWeights(zoo_folder / "model.safetensors"))
    return files


@pytest.mark.timeout(600)
def test_the_checked_in_package_is_that_of_the_code(zoo_folder: Path, traced: Graphs, fresh: GraphFiles) -> None:
    manifest = Package.open(zoo_folder).manifest
    # What a translation of probes has shown is not of the trace.
    shown = {"probes": manifest.graphs.probes, "aligner": aligner(zoo_folder, Package.open(zoo_folder))}
    assert manifest.graphs == traced.spec.model_copy(update=shown), "run make zoo"
    assert manifest.graphs.aligner is not None
    assert len(manifest.graphs.probes) == 3 and manifest.native_certificate is not None
    for graph in traced.models:
        assert (fresh.folder / "beside" / graph).read_bytes() == (zoo_folder / graph).read_bytes(), "run make zoo"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("graph", ["encoder.onnx", "decoder.onnx", "target.onnx"])
def test_they_have_the_weights_of_a_package_of_their_own(
    zoo_folder: Path, fresh: GraphFiles, graph: str, tmp_path: Path
) -> None:
    """But for the table of tokens, which is looked up in as it is in the file."""
    own, checked_in = constants(fresh.folder / graph, tmp_path), constants(zoo_folder / graph, tmp_path)
    assert set((checked_in - own).values()) == {1} and len(checked_in - own) == 1
    assert len(own - checked_in) == (graph != "decoder.onnx")  # a decoder multiplies with it too


@pytest.mark.timeout(600)
def test_native_graphs_compute_the_same_bits_with_both(zoo_folder: Path, fresh: GraphFiles) -> None:
    """A table in fp16, which is widened row by row, and one in fp32."""
    try:
        library = open_library()
    except LibraryError as error:
        pytest.skip(str(error))
    ids, lengths = np.array([4, 39, 366, 0, 58, 0]), np.array([4, 2], np.int32)
    given = {"ids": ids, "positions": np.array([0, 1, 2, 3, 0, 1], np.int32), "lengths": lengths}
    found = [
        open_session(folder / "native_encoder.onnx", CPU, library=library.path).run(None, given)
        for folder in (zoo_folder, fresh.folder)
    ]
    assert [array.tobytes() for array in found[0]] == [array.tobytes() for array in found[1]]


def test_it_translates_as_a_package_of_its_own_does(zoo_folder: Path, fresh: GraphFiles) -> None:
    package = Package.open(zoo_folder)
    tokenizer, own = package.tokenizer(), Loadable(fresh, package.manifest.generation)
    sources = [tokenizer.encode(text) for text in heldout(zoo_folder.name.partition("-")[0])[SENTENCES]]
    found = []
    for model in (Loadable.of(package), own):
        with open_translating(model, tokenizer, TargetLimits(1)) as translating:
            found.append(list(translating.translate(sources)))
    assert found[0] == found[1]


def test_a_package_refers_to_nothing_but_its_own_files(zoo_folder: Path) -> None:
    manifest = Package.open(zoo_folder).manifest
    tensors = [
        value.const_value for graph in zoo_folder.glob("*.onnx") for value in ir.load(graph).graph.initializers.values()
    ]
    locations = {str(tensor.location) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}
    assert locations == {manifest.weights} <= set(manifest.files)


@pytest.mark.parametrize("place", ["../secret", "link"])
def test_a_graph_that_looks_out_of_its_folder_is_not_loaded(tmp_path: Path, place: str) -> None:
    """ONNX Runtime sees to it: a stranger's package reads no other file."""
    folder = tmp_path / "package"
    folder.mkdir()
    np.ones((32, 16), np.float32).tofile(tmp_path / "secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    shape = ir.Shape([32, 16])
    tensor = ir.ExternalTensor(place, 0, 2048, ir.DataType.FLOAT, shape=shape, name="w", base_dir=folder)
    tape = ir.tape.Tape()
    weight = ir.Value(name="w", shape=shape, type=ir.TensorType(ir.DataType.FLOAT), const_value=tensor)
    output = tape.op("Identity", [weight])
    output.name, output.type = "y", ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph([], [output], nodes=tape.nodes, initializers=[weight], opset_imports={"": 21}, name="g")
    ir.save(ir.Model(graph, ir_version=10), folder / "graph.onnx")
    with pytest.raises(Exception, match="External data path escapes model directory"):
        ort.InferenceSession(folder / "graph.onnx")


def constants(graph: Path, scratch: Path) -> Counter[tuple[str, tuple[int, ...], bytes]]:
    """The constants that ONNX Runtime runs a graph with."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(scratch / "optimized.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.bin")
    ort.InferenceSession(graph, options)
    arrays = (value.const_value for value in ir.load(scratch / "optimized.onnx").graph.initializers.values())
    return Counter((str(array.dtype), array.shape, array.tobytes()) for array in (a.numpy() for a in arrays if a))
