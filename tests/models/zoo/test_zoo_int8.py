"""The package of 8 bits that comes with the repository: small, that of the code, and nearly as good as fp32."""

from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from bench.quality import measure
from bench.sentences import heldout
from engine.devices.session import CPU
from export.command.arguments import parse
from export.inputs import read_quantizing_texts, read_samples
from export.native.graphs import native_graphs
from export.quantization.model import native_model
from export.quantization.translations.quantize import quantize_model
from export.tracing.trace import trace
from export.verification.verify import verify
from export.weights.save import save
from models.checkpoint import load_checkpoint
from models.package.folder import Package
from models.package.manifest import Manifest
from tests.checkpoints import ROOT, ZOO
from tests.models.zoo.aligners import aligner
from tests.models.zoo.test_zoo import SENTENCES, translations

FOLDER = ROOT / "models" / "zoo" / "en-pt-int8"
OTHER_BYTES = 0.02
"""Share of them on another machine: the projections of the coarse look are floats, and 1.6 % of all."""
LARGEST = 20_000_000
"""Bytes of the folder."""


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return Package.open(FOLDER).manifest


def test_it_is_small_and_says_where_it_is_from(manifest: Manifest) -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= LARGEST
    assert manifest.checkpoint == Package.open(ZOO).manifest.checkpoint
    assert (FOLDER / "NOTICE").read_bytes() == (ZOO / "NOTICE").read_bytes()
    assert (FOLDER / "LICENSE").read_bytes() == (ZOO / "LICENSE").read_bytes()
    assert "models/zoo/en-pt-int8\n" in (ROOT / "NOTICE").read_text(encoding="utf-8")


def test_it_has_native_graphs_and_what_its_8_bits_cost(manifest: Manifest) -> None:
    assert manifest.graphs.precision.weights == "int8" and manifest.graphs.native is not None
    cost = manifest.certificate.quantization
    assert cost is not None and cost.equal >= 0.75 * cost.sentences
    widened = {layer.layer for layer in cost.layers if layer.activation_bits == 16}
    assert "cross_kv" in widened and len(widened) < 8
    assert not [layer for layer in cost.layers if layer.activation_bits == 32]


@pytest.mark.timeout(900)
def test_the_checked_in_package_is_that_of_the_code(manifest: Manifest, tmp_path: Path) -> None:
    """To the last bit on the machine that made it; elsewhere a weight may be rounded the other way."""
    options = parse([str(ZOO), "--precision", "int8"])
    samples = read_samples(options.samples, options.verify_samples)
    texts, checkpoint = read_quantizing_texts(options, samples), load_checkpoint(ZOO)
    assert texts is not None
    quantized = quantize_model(checkpoint, checkpoint.open_tokenizer(ZOO), *texts, ignored)
    native = native_graphs(checkpoint.transformer, quantized.recipe)
    fresh = save(trace(quantized.model, scoring=True).with_native(native), tmp_path)
    emulated = native_model(checkpoint.transformer, quantized.recipe)
    verified = verify(checkpoint, ZOO, fresh, samples[:2], CPU, ignored, emulated)
    assert {agreement.sentences for agreement in verified.certificate.agreements} == {2}
    # What translations have shown is not of the trace.
    shown = {"probes": manifest.graphs.probes, "aligner": aligner(ZOO, Package.open(FOLDER))}
    assert manifest.graphs == fresh.spec.model_copy(update=shown), "run make zoo"
    ours, theirs = (np.fromfile(folder / "weights.bin", np.int8) for folder in (FOLDER, tmp_path))
    assert len(ours) == len(theirs), "run make zoo"
    assert (ours != theirs).mean() < OTHER_BYTES, "run make zoo"


def ignored(_: str) -> None:
    """Nobody waits for what is told."""


def test_it_translates_nearly_as_fp32_does() -> None:
    sources, references = heldout("en")[SENTENCES], heldout("pt")[SENTENCES]
    found, expected = (translations(Package.open(folder), sources) for folder in (FOLDER, ZOO))
    same = sum(ours == theirs for ours, theirs in zip_longest(found, expected))
    assert same >= 0.75 * len(sources)
    ours, theirs = (measure(texts, sources, references) for texts in (found, expected))
    assert abs(ours.bleu - theirs.bleu) < 2.0 and ours.stutters == 0
