"""The package of 8 bits that comes with the repository: small, that of the code, and nearly as good as fp32."""

from collections.abc import Callable
from itertools import zip_longest

import numpy as np
import pytest

from bench.quality import measure
from bench.sentences import heldout
from models.package.folder import Package
from models.package.manifest import Manifest
from tests.checkpoints import ROOT, ZOO
from tests.models.test_zoo import SENTENCES, translations

FOLDER = ROOT / "models" / "zoo" / "en-pt-int8"
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
def test_the_checked_in_package_is_that_of_the_code(manifest: Manifest, keep_package: Callable[..., Package]) -> None:
    """To the last bit on the machine that made it; elsewhere a weight may be rounded the other way."""
    options = ["--precision", "int8", "--name", "en-pt-int8", "--verify-samples", "32"]
    fresh = keep_package("en-pt-int8", ZOO, *options)
    assert fresh.manifest.graphs.model_copy(update={"probes": ()}) == manifest.graphs.model_copy(update={"probes": ()})
    ours, theirs = (np.fromfile(folder / "weights.bin", np.int8) for folder in (FOLDER, fresh.folder))
    assert len(ours) == len(theirs), "run make zoo"
    assert (ours != theirs).mean() < 1e-3, "run make zoo"


def test_it_translates_nearly_as_fp32_does() -> None:
    sources, references = heldout("en")[SENTENCES], heldout("pt")[SENTENCES]
    found, expected = (translations(Package.open(folder), sources) for folder in (FOLDER, ZOO))
    same = sum(ours == theirs for ours, theirs in zip_longest(found, expected))
    assert same >= 0.75 * len(sources)
    ours, theirs = (measure(texts, sources, references) for texts in (found, expected))
    assert abs(ours.bleu - theirs.bleu) < 2.0 and ours.stutters == 0
