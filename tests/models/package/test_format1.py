"""A package of format 1, written before cache tensors were declared, opens and decodes to the tokens it decoded to."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.cuda.decoder import CudaDecoder
from engine.decoder import Decoder
from engine.devices.session import CPU
from engine.loading.load import Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.runner import Runner
from models.package.checked import PackageError
from models.package.declared.numbers import Precisions
from models.package.derived import graphs_spec
from models.package.folder import MANIFEST, Package

DATA = Path(__file__).parents[2] / "data"
OLD = DATA / "package-format-1"
EXPECTED = json.loads((DATA / "package-format-1.expected.json").read_text())


@pytest.fixture(scope="module")
def package() -> Package:
    return Package.open(OLD)


def test_it_is_one_of_format_1(package: Package) -> None:
    assert json.loads((OLD / MANIFEST).read_text())["format_version"] == 1
    assert package.manifest.format_version == 2


def test_what_it_does_not_say_follows_from_its_architecture(package: Package) -> None:
    graphs, model = package.manifest.graphs, package.manifest.model
    assert graphs.cache == graphs_spec(model, "fp32").cache
    assert graphs.precision == Precisions.of_all("fp32")
    assert (graphs.hidden, graphs.logits, graphs.cross_query) == ("memory", None, None)
    assert package.graphs().shortlist is None


@pytest.mark.parametrize("on_device", [False, True], ids=["cpu", "cuda's, on the CPU provider"])
@pytest.mark.parametrize(("search", "num_beams"), [("greedy", 1), ("beam", 4)])
def test_it_decodes_to_the_same_tokens(package: Package, search: str, num_beams: int, on_device: bool) -> None:
    loadable, tokenizer = Loadable.of(package), package.tokenizer()
    room = loadable.graphs.spec.max_positions, loadable.generation.max_new_tokens
    decoder: Decoder[Any] = CudaDecoder(loadable.graphs, *room, CPU) if on_device else open_decoder(loadable, CPU)
    decoding = replace(loadable.generation.decoding(), num_beams=num_beams)
    sources = [(tuple(tokenizer.encode(case["text"])), decoding) for case in EXPECTED]
    expected = [tuple(case[search]) for case in EXPECTED]
    with Runner(decoder, rows=8, workers=1, observer=Unobserved()) as runner:
        found = [answer.hypotheses[0].token_ids for answer in decode(runner, loadable.rules, sources)]
    assert found == expected
    assert len(set(expected)) > 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda manifest: manifest["model"].update(width="wide"), "model.width: "),
        (lambda manifest: manifest.update(precision="int3"), "precision: "),
        (lambda manifest: manifest.pop("certificate"), "certificate: Field required"),
        (lambda manifest: manifest.update(extra=1), "extra: "),
    ],
)
def test_an_altered_manifest_says_where(tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(OLD, folder)
    content = json.loads((folder / MANIFEST).read_text())
    change(content)
    (folder / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(PackageError) as refusal:
        Package.open(folder)
    assert said in str(refusal.value)


def test_what_it_leaves_out_has_defaults(tmp_path: Path) -> None:
    """Those from before there was a choice."""
    folder = tmp_path / "copy"
    shutil.copytree(OLD, folder)
    content = json.loads((folder / MANIFEST).read_text())
    for name in ("precision", "attention", "encoder_graph", "decoder_graph", "output_graph", "shortlist"):
        del content[name]
    del content["model"]["decoder_cell"], content["certificate"]["device"]
    (folder / MANIFEST).write_text(json.dumps(content))
    manifest = Package.open(folder).manifest
    assert manifest.graphs == Package.open(OLD).manifest.graphs
    assert (manifest.model.architecture, manifest.certificate.device) == ("transformer", "cpu")
