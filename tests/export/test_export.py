"""From checkpoint to package on the command line; what is not the checkpoint's model never becomes a package."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from rich.console import Console

from engine.cpu.decoder import CpuDecoder
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Decoder, Found
from engine.devices.session import CPU
from engine.loading import load
from engine.loading.load import Loadable
from export import __main__ as command
from export import steps
from export.command.progress import Progress
from export.command.summary import size
from export.tracing.graphs import Graphs
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.verification.compare_numbers import candidate_error, encoder_error, step_errors
from export.verification.tolerances import TOLERANCES
from export.verification.verify import VerificationError, large_errors, most_tokens, open_decoder, verify
from export.weights.save import save
from models.architectures.architecture import Architecture
from models.architectures.build import build
from models.checkpoint import load_checkpoint
from models.package.declared.numbers import Precisions
from models.package.declared.precision import AttentionKind, OutputLayer, Precision
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from models.package.manifest import Certificate, StepError
from tests.checkpoints import ROOT, edit_json, write_checkpoint
from tests.server_process import server_process

pytestmark = pytest.mark.timeout(300)
"""An export alone takes a minute and a half on a busy machine."""
TOLERANCE = TOLERANCES["fp32"].error
TEXTS = ["The children were playing in the garden.", "It started to rain."]


@pytest.fixture
def graphs(tiny_package: Package, tmp_path: Path) -> GraphFiles:
    """The tiny package's graphs, to be damaged."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    for file in [*tiny_package.folder.glob("*.onnx"), tiny_package.folder / "weights.bin"]:
        shutil.copyfile(file, folder / file.name)
    return replace(tiny_package.graphs(), folder=folder, entries={})


def export(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


def external_weights(graphs: Path) -> Iterator[tuple[str, ir.ExternalTensor]]:
    for name in ("encoder.onnx", "decoder.onnx"):
        for value in ir.load(graphs / name).graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield f"{name} {value.name}", value.const_value


def read(graphs: Path, tensor: ir.ExternalTensor) -> "np.memmap[tuple[int, ...], np.dtype[np.float32]]":
    """The numbers of a weight, in the file."""
    return np.memmap(graphs / "weights.bin", np.float32, "r+", tensor.offset or 0, tuple(tensor.shape.numpy()))


# The command line


def test_a_package_of_a_checkpoint(tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = tmp_path / "samples.txt"
    samples.write_text("\n\n".join(TEXTS) + "\n")
    target = tmp_path / "new" / "package"
    arguments = [tiny_checkpoint, "--out", target, "--name", "en-pt.2", "--samples", samples, "--verify-samples", 2]
    assert export(*arguments) == 0
    manifest = Package.open(target).manifest
    assert manifest.name == "en-pt.2"
    assert manifest.checkpoint.name == "tiny"
    assert manifest.tools["torch"] == torch.__version__
    assert [agreement.equal for agreement in manifest.certificate.agreements] == [2, 2, 2]
    assert manifest.graphs.output_layer == "full"
    shown = capsys.readouterr()
    for word in ("weights.bin", "GroupQueryAttention", "2 of 2 sentences", "verify", str(target)):
        assert word in shown.out.replace("\n", "") or word in shown.out
    assert re.search(r"vocab.json +│ \d+\.\d kB", shown.out)
    assert re.search(r"^trace +\d+\.\d s$", shown.err, re.MULTILINE)
    assert "verify: translations by transformers, beam 4" in shown.err
    assert "full output layer: 212 tokens are few" in shown.err


def test_an_fp16_package_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = write_checkpoint(tmp_path / "small", encoder_layers=1, decoder_layers=1)
    target = tmp_path / "package"
    samples = tmp_path / "samples.txt"
    samples.write_text("A cat.\nRain.\nIt is late.\n")
    options = "--precision", "fp16", "--samples", samples, "--verify-samples", 3
    assert export(checkpoint, "--out", target, *options) == 0
    shown = capsys.readouterr().out
    assert "fp16, fused attention" in shown
    manifest = Package.open(target).manifest
    assert manifest.graphs.precision == Precisions.of_all("fp16")
    assert (manifest.graphs.attention, manifest.certificate.device) == ("fused", "cpu")
    assert TOLERANCE < manifest.certificate.encoder_error <= manifest.certificate.tolerance == TOLERANCES["fp16"].error
    assert all(agreement.equal >= 0.9 * agreement.sentences for agreement in manifest.certificate.agreements)
    with server_process(target, "--workers", 1) as server:
        asked = 2 * len(manifest.graphs.probes)
        assert server.metrics()("dragoman_canary_answers_total", result="equal") == asked > 0


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(42, "0.0 kB"), (812, "0.8 kB"), (99_949, "99.9 kB"), (100_000, "0.10 MB")]
)
def test_a_size_that_is_not_nothing_does_not_look_so(size_bytes: int, shown: str) -> None:
    assert size(size_bytes) == shown


def test_heads_of_any_size_with_plain_attention_and_a_quiet_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = write_checkpoint(tmp_path / "narrow", d_model=36, encoder_layers=1, decoder_layers=1)
    target = tmp_path / "package"
    arguments = [checkpoint, "--out", target, "--verify-samples", 2]
    assert export(*arguments) == 2
    shown = capsys.readouterr().err
    assert "heads have 12 numbers (width 36, 3 heads); fused attention takes multiples of 8" in shown
    assert export(*arguments, "--attention", "plain", "--quiet") == 0
    assert capsys.readouterr().out == f"{target} is ready. Serve it: python -m server --package {target}\n"
    assert Package.open(target).manifest.graphs.attention == "plain"


def test_two_vocabularies(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(
        tmp_path / "two", separate=True, activation_function="gelu", encoder_layers=1, decoder_layers=1
    )
    assert export(checkpoint, "--out", tmp_path / "package", "--verify-samples", 4) == 0
    package = Package.open(tmp_path / "package")
    assert package.manifest.model.source_vocab_size != package.manifest.model.target_vocab_size
    assert package.tokenizer().decode(package.tokenizer().encode("a")) != ""


def test_the_certificate_says_what_was_compared(tiny_package: Package) -> None:
    certificate = tiny_package.manifest.certificate
    assert {(step.rows, step.past) for step in certificate.steps} >= {(1, 0), (1, 60), (3, 17), (8, 1), (8, 60)}
    assert {(step.rows, step.past) for step in certificate.steps if step.ragged} == {(3, 17), (3, 60), (8, 17), (8, 60)}
    assert all(0 < step.log_prob_error <= TOLERANCE for step in certificate.steps)
    assert 0 < certificate.encoder_error <= TOLERANCE
    compared = [(agreement.reference, agreement.num_beams) for agreement in certificate.agreements]
    assert compared == [("pytorch", 1), ("transformers", 1), ("transformers", 4)]


def test_the_zoo_has_passed(zoo_package: Package) -> None:
    manifest = zoo_package.manifest
    assert manifest.name == "en-pt"
    assert (manifest.source_languages, manifest.target_languages) == (("en",), ("pt",))
    assert manifest.graphs.output_layer == "screened"  # nobody asked for another
    assert manifest.certificate.steps
    assert all(agreement.equal == agreement.sentences > 0 for agreement in manifest.certificate.agreements)


def test_every_weight_is_stored_once(zoo_package: Package) -> None:
    """The embedding is in both graphs, and in the decoder twice."""
    numbers = sum(weight.numel() for weight in build(zoo_package.manifest.model).parameters())
    assert zoo_package.manifest.files["weights.bin"].size_bytes < 4 * numbers * 1.01
    names = [name for name, _ in external_weights(zoo_package.folder)]
    places = [tensor.offset for _, tensor in external_weights(zoo_package.folder)]
    assert len(set(places)) < len(names)
    assert all(place is not None and place % 4096 == 0 for place in places)


def test_licences_go_with_the_weights(zoo_package: Package) -> None:
    for name in ("LICENSE", "NOTICE"):
        assert (zoo_package.folder / name).read_bytes() == (ROOT / "models" / "zoo" / "en-pt" / name).read_bytes()


def of_another_family(folder: Path) -> list[object]:
    edit_json(folder / "config.json", model_type="llama")
    return [folder]


def with_truncated_weights(folder: Path) -> list[object]:
    os.truncate(folder / "model.safetensors", 1000)
    return [folder]


BAD_INPUT: dict[str, tuple[Callable[[Path], list[object]], str]] = {
    "no checkpoint": (lambda folder: [folder / "nothing"], "nothing is not a folder"),
    "an empty one": (lambda folder: [""], "the checkpoint is empty; expected a checkpoint folder"),
    "another family": (of_another_family, "model_type is 'llama'; supported: bart, "),
    "truncated weights": (with_truncated_weights, "model.safetensors is not a whole safetensors file"),
    "bad name": (lambda folder: [folder, "--name", "a/b"], "'a/b' cannot be the model's name"),
    "no samples": (lambda folder: [folder, "--samples", folder / "none.txt"], "none.txt"),
    "samples that are no text": (
        lambda folder: [folder, "--samples", folder / "model.safetensors"],
        "model.safetensors is not UTF-8",
    ),
    "too many samples": (
        lambda folder: [folder, "--verify-samples", 201],
        "200 sentences: ask for 1 to 200, or give",
    ),
    "no sample": (lambda folder: [folder, "--verify-samples", 0], "--verify-samples is 0"),
    "bf16, which nothing here can verify": (
        lambda folder: [folder, "--precision", "bf16"],
        "export on a CUDA machine with --device cuda, or with --precision fp16",
    ),
    "a task of no words": (lambda folder: [folder, "--task", ": "], "--task is ': ', which has no words to call it by"),
    "a task twice": (lambda folder: [folder, "--task", "a: ", "--task", "a:"], "--task 'a' is given twice"),
    "a task of two lines": (lambda folder: [folder, "--task", "a\nb"], "in which not every character is printable"),
    "a task that no text fits beside": (
        lambda folder: [folder, "--task", "house " * 600],
        "tokens; the model takes 80, with the text: shorten it",
    ),
    "CUDA, which this ONNX Runtime has not": (lambda folder: [folder, "--device", "cuda"], "is built without CUDA"),
}


@pytest.mark.parametrize(("make", "said"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_ends_with_2_and_leaves_nothing(
    tiny_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], list[object]],
    said: str,
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    assert export(*make(folder), "--out", tmp_path / "new" / "package") == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
    assert list(tmp_path.iterdir()) == [folder]


def test_nothing_but_a_package_is_replaced(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").touch()
    assert export(tiny_checkpoint, "--out", tmp_path) == 2
    [said] = capsys.readouterr().err.splitlines()  # before any stage, which may take hours, is over
    assert "exists and is not a package" in said
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_wrong_graph_ends_with_1_and_leaves_the_old_package(
    tiny_checkpoint: Path,
    tiny_package: Package,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(
        model: Architecture, attention: AttentionKind, shortlist: bool, output_layer: OutputLayer, scoring: bool
    ) -> Graphs:
        graphs = trace(model, attention, shortlist, output_layer)  # not of given targets, which takes seconds
        value = next(value for name, value in graphs.decoder.graph.initializers.items() if name.endswith("down.weight"))
        assert value.const_value is not None
        value.const_value = ir.tensor(value.const_value.numpy() * 1.5, name=value.name)
        return graphs

    monkeypatch.setattr(steps, "trace", damaged)
    target = tmp_path / "package"
    shutil.copytree(tiny_package.folder, target)
    assert export(tiny_checkpoint, "--out", target, "--verify-samples", 3) == 1
    shown = capsys.readouterr().err
    assert "the exported graphs differ from the checkpoint" in shown
    assert "log-probabilities (8 ragged rows, 60 tokens past) differ by" in shown
    assert "of 3 translations differ from transformers, beam 4; at least 100% must be equal. The first: '" in shown
    assert Package.open(target).sha256 == tiny_package.sha256
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(tiny_checkpoint: Path, tmp_path: Path, stop: signal.Signals) -> None:
    arguments = [tiny_checkpoint, "--out", tmp_path / "new" / "package"]
    run = [sys.executable, "-m", "export", *map(str, arguments)]
    with subprocess.Popen(run, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("load")  # it traces next, for some seconds
        process.send_signal(stop)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []


def test_progress_on_a_terminal() -> None:
    shown = io.StringIO()
    progress = Progress(Console(file=shown, force_terminal=True, width=60))
    with progress.stage("verify") as tell:
        tell("beam 4")
    assert progress.seconds.keys() == {"verify"}
    assert re.search(rf"verify +{progress.seconds['verify']:.1f} s", shown.getvalue())


# Verification


def test_an_error_in_any_weight_is_seen(tiny_checkpoint: Path, graphs: GraphFiles) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)

    def worst() -> float:
        """The largest error of both graphs."""
        decoder = open_decoder(Loadable(graphs, checkpoint.generation), CPU)
        steps = step_errors(checkpoint.model, decoder, most_tokens(graphs.spec.max_positions), rows=3, ragged=True)
        hidden = encoder_error(checkpoint.model, graphs, CPU)
        return max(hidden, *(step.log_prob_error for step in steps))

    assert worst() <= TOLERANCE
    weights = dict(external_weights(graphs.folder))
    assert len(weights) > 15
    for name, tensor in weights.items():
        numbers = read(graphs.folder, tensor)
        right = numbers.copy()
        numbers *= 1.05
        assert worst() > TOLERANCE, name
        numbers[...] = right
    assert worst() <= TOLERANCE


@pytest.mark.parametrize(("precision", "kind"), [("fp32", CpuDecoder), ("fp16", CudaDecoder)])
def test_what_serves_a_package_verifies_it(
    tiny_checkpoint: Path, tmp_path: Path, precision: Precision, kind: type[Decoder[Any]]
) -> None:
    """fp16 is served by the decoder for devices on the CPU too."""
    checkpoint = load_checkpoint(tiny_checkpoint)
    model = Loadable(save(trace(variant(checkpoint.model, precision, "fused")), tmp_path), checkpoint.generation)
    assert type(load.open_decoder(model, CPU)) is type(open_decoder(model, CPU)) is kind


def test_other_tokens_are_shown(tiny_checkpoint: Path, graphs: GraphFiles) -> None:
    tables = [tensor for name, tensor in external_weights(graphs.folder) if tensor.shape.numpy()[0] > 200]
    read(graphs.folder, tables[0])[30:60] = 0
    with pytest.raises(VerificationError) as error:
        verify(load_checkpoint(tiny_checkpoint), tiny_checkpoint, graphs, TEXTS, CPU, lambda _: None)
    message = str(error.value)
    assert "translations differ from pytorch, greedy" in message
    assert "expected" in message
    assert "found" in message
    read(graphs.folder, tables[0])[...] = np.nan
    with pytest.raises(VerificationError, match="the exported graphs give no finite numbers of a sample: those on the"):
        verify(load_checkpoint(tiny_checkpoint), tiny_checkpoint, graphs, TEXTS, CPU, lambda _: None)


def test_native_graphs_that_are_others_are_seen(tiny_checkpoint: Path, graphs: GraphFiles) -> None:
    if graphs.spec.native is None:
        pytest.skip("there is no library")
    file = graphs.folder / graphs.spec.native.encoder.file
    model = ir.load(file)
    [embed] = [node for node in model.graph if node.op_type == "Embed"]
    embed.attributes["scale"] = ir.AttrFloat32("scale", embed.attributes["scale"].as_float() * 1.02)
    ir.save(model, file)
    with pytest.raises(VerificationError, match=r"the native graphs differ .*\n +hidden states differ by"):
        verify(load_checkpoint(tiny_checkpoint), tiny_checkpoint, graphs, TEXTS, CPU, lambda _: None)


def test_a_graph_that_does_not_load(tiny_checkpoint: Path, graphs: GraphFiles) -> None:
    os.truncate(graphs.folder / "weights.bin", 100)
    with pytest.raises(VerificationError, match="does not load"):
        verify(load_checkpoint(tiny_checkpoint), tiny_checkpoint, graphs, TEXTS, CPU, lambda _: None)


def test_what_is_not_a_number_is_too_large() -> None:
    steps = (StepError(rows=1, past=0, ragged=False, log_prob_error=float("nan")),)
    certificate = Certificate(tolerance=TOLERANCE, encoder_error=float("nan"), steps=steps, agreements=())
    assert len(list(large_errors(certificate))) == 2


def test_candidate_error() -> None:
    expected = np.log(np.array([0.1, 0.2, 0.4, 0.3], np.float32))

    def error(*candidates: tuple[int, float]) -> float:
        token_ids, probabilities = zip(*candidates, strict=True)
        found = Found(np.array([token_ids]), np.log(np.array([probabilities], np.float32)))
        return candidate_error(found, 0, expected)

    assert error((2, 0.4), (3, 0.3)) < 1e-6
    assert error((2, 0.4), (1, 0.2)) == pytest.approx(np.log(1.5))  # not the best
    assert error((3, 0.4), (2, 0.3)) == pytest.approx(np.log(4 / 3))  # of other tokens
    assert error((2, 0.4), (4, 0.3)) == float("inf")  # no token at all


def test_long_sentences_are_compared_by_their_beginning(tiny_checkpoint: Path, graphs: GraphFiles) -> None:
    text = " ".join(chain.from_iterable([TEXTS] * 20))
    verified = verify(load_checkpoint(tiny_checkpoint), tiny_checkpoint, graphs, [text], CPU, lambda _: None)
    assert [agreement.equal for agreement in verified.certificate.agreements] == [1, 1, 1]
