"""int8 packages on the command line, and what is said where they cannot be."""

import hashlib
import os
import re
from pathlib import Path

import onnx_ir as ir
import pytest

from bench.sentences import flores, heldout
from export import __main__ as command
from export.command.arguments import CALIBRATION, SAMPLES, parse
from export.inputs import LEAST_CALIBRATION, InputError, read_calibration, read_most_loss, read_references
from export.quantization.texts import Calibration
from models.config import ModelConfig
from models.package.checked import PackageError
from models.package.declared.numbers import Precisions
from models.package.folder import Package, sha256
from tests.checkpoints import ZOO

pytestmark = pytest.mark.timeout(300)
"""The export alone takes three minutes on a busy machine."""
SENTENCES = [line.strip() for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
VERIFIED = 24


def export(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on stderr, however a terminal wraps it."""
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def package(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("int8")
    calibration, references = folder / "calibration.txt", folder / "references.txt"
    calibration.write_text("\n".join(SENTENCES[100:140]), encoding="utf-8")
    references.write_text("\n".join(SENTENCES[:VERIFIED]), encoding="utf-8")
    given = ["--calibration", calibration, "--references", references, "--verify-samples", VERIFIED]
    # These are no translations of anything, and what random weights say gains or loses points by them.
    given += ["--most-bleu-loss", 5, "--most-chrf-loss", 5]
    assert export(tiny_checkpoint, "--out", folder / "package", "--precision", "int8", *given) == 0
    return Package.open(folder / "package")


def test_a_package_of_8_bits_says_what_they_cost(package: Package) -> None:
    manifest = package.manifest
    assert manifest.graphs.precision == Precisions(weights="int8", activations="fp32", cache="fp32")
    found = manifest.certificate.quantization
    assert found is not None
    assert found.calibration_sha256 == sha256(package.folder.parent / "calibration.txt")
    assert (found.calibration_sentences, found.sentences) == (40, VERIFIED)
    assert 0.8125 * VERIFIED <= found.equal <= VERIFIED and found.drift > 0
    assert {"encoder.0.attention.qkv", "decoder.1.feed_forward.down", "cross_kv", "output"} <= {
        layer.layer for layer in found.layers
    }
    assert found.fp32 is not None and found.int8 is not None
    if found.equal == VERIFIED:
        assert found.fp32 == found.int8


def test_weights_lie_there_once_by_outputs(package: Package) -> None:
    weights: dict[int, tuple[int, ...]] = {}
    for name in ("encoder.onnx", "decoder.onnx"):
        for value in ir.load(package.folder / name).graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and tensor.dtype == ir.DataType.INT8 and len(tensor.shape) == 2:
                assert tensor.offset is not None
                weights[tensor.offset] = tuple(tensor.shape.numpy())
    config = package.manifest.model
    assert isinstance(config, ModelConfig)
    shapes = list(weights.values())
    assert shapes.count((config.target_vocab_size, config.width)) == 1
    quantization = package.manifest.certificate.quantization
    assert quantization is not None
    in_bytes = [layer.layer for layer in quantization.layers if layer.activation_bits < 32]
    queries_keys_values = [layer for layer in in_bytes if layer.endswith("attention.qkv")]
    assert shapes.count((3 * config.width, config.width)) == len(queries_keys_values) > 0
    assert (config.encoder_ffn, config.width) in shapes and (config.width, config.decoder_ffn) in shapes


def test_weights_of_another_package_are_refused(package: Package, tiny_package: Package, tmp_path: Path) -> None:
    for file in package.folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "weights.bin").write_bytes((tiny_package.folder / "weights.bin").read_bytes())
    with pytest.raises(PackageError, match=r"weights\.bin"):
        Package.open(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has 0 sentences; to calibrate takes at least 32"),
        (b"One line.\n", "has 1 sentences; to calibrate takes at least 32"),
        ("Ol\xe1.\n".encode("latin-1") * 40, "is not UTF-8"),
        ("One line.\n".encode("utf-16-le") * 40, r"byte 2 \(0x00\) is in no text; if it is UTF-16, convert"),
    ],
)
def test_text_that_calibrates_nothing_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read_calibration(parse(["folder", "--precision", "int8", "--calibration", str(file)]))


def test_english_sentences_calibrate_where_none_are_given() -> None:
    calibration = read_calibration(parse(["folder", "--precision", "int8"]))
    assert len(calibration.texts) >= 3 * LEAST_CALIBRATION and calibration.sha256 == sha256(CALIBRATION)
    tested = {*SENTENCES, *flores(), *heldout()}
    assert not tested & set(calibration.texts)


@pytest.mark.parametrize("loss", [-0.1, 100.5, float("nan")])
def test_a_loss_that_cannot_be_is_refused(loss: float) -> None:
    options = parse(["folder", "--precision", "int8", "--references", "text", "--most-chrf-loss", str(loss)])
    with pytest.raises(InputError, match=f"--most-chrf-loss is {loss}; expected 0 to 100"):
        read_most_loss(options)


def test_text_of_another_language_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "text"
    file.write_text("\n".join(heldout("pt")[:100]), encoding="utf-8")
    assert export(ZOO, "--precision", "int8", "--calibration", file, "--out", tmp_path / "package") == 2
    assert not (tmp_path / "package").exists()
    assert re.search(r"100 texts to calibrate on are unlike those of 32 samples: .* 0\.\d+, and 0\.6", one_line(capsys))


def test_what_ends_no_line_is_a_part_of_one(tmp_path: Path) -> None:
    """References are told apart by their lines."""
    file = tmp_path / "text"
    file.write_bytes("\ufeffOne\u2028still one.\r\nTwo\x0cstill two.\x85\n\n".encode())
    options = parse(["folder", "--precision", "int8", "--references", str(file), "--verify-samples", "2"])
    assert read_references(options) == ["One\u2028still one.", "Two\x0cstill two."]


def test_references_keep_their_places(tmp_path: Path) -> None:
    """Without the empty line, each sentence behind it would be compared with the translation of the next."""
    file = tmp_path / "text"
    file.write_text("Um.\n\nDois.\n", encoding="utf-8")
    arguments = ["folder", "--precision", "int8", "--references", str(file), "--verify-samples"]
    with pytest.raises(InputError, match="text, line 2 is empty; translate sentence 2 of the samples, or leave"):
        read_references(parse([*arguments, "2"]))
    assert read_references(parse([*arguments, "1"])) == ["Um."]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_texts_may_come_through_a_pipe(mark: bytes, tmp_path: Path) -> None:
    """A shell's <(...) is one. What stands before a text, as some editors have it, belongs to no sentence."""
    content = mark + b"One line.\n" * LEAST_CALIBRATION
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    arguments = ["folder", "--precision", "int8", "--calibration", f"/dev/fd/{reader}"]
    try:
        calibration = read_calibration(parse(arguments))
    finally:
        os.close(reader)
    assert calibration == Calibration(["One line."] * LEAST_CALIBRATION, hashlib.sha256(content).hexdigest())


def test_too_few_references_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("Olá.\n", encoding="utf-8")
    with pytest.raises(InputError, match="has 1 translations; --verify-samples is 32"):
        read_references(parse(["folder", "--precision", "int8", "--references", str(file)]))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--calibration", "text"], "--calibration belongs to --precision int8; the precision is fp32"),
        (["--references", "text", "--precision", "fp16"], "--references belongs to --precision int8"),
        (["--most-bleu-loss", "1", "--precision", "int8"], "--most-bleu-loss belongs to --references"),
        (
            ["--in-place", "--precision", "int8"],
            "--in-place keeps the checkpoint's weights, which are not in int8: say",
        ),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["folder", *arguments])
    assert reason in capsys.readouterr().err
