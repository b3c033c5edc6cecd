"""models.package.outputs: what the manifest declares of graphs that no run may have asked yet, their files give."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from models.package.checked import PackageError
from models.package.folder import Package
from models.package.outputs import outputs
from tests.models.package.test_package import edit_manifest, in_graphs


def test_they_are_those_that_onnx_reads(tiny_package: Package) -> None:
    files = [graph.file for graph in tiny_package.manifest.graphs.files]
    assert len(files) > 5
    for file in (tiny_package.folder / name for name in files):
        read = onnx.load(file, load_external_data=False)
        assert outputs(file.read_bytes()) == [output.name for output in read.graph.output]


@pytest.mark.parametrize("data", [b"", b"\xff", b"no model", b"\x3a\xff\x01", b"\x3a\x03\x62\xff\x01"])
def test_what_is_no_model_has_none(data: bytes) -> None:
    assert outputs(data) == []


@pytest.mark.parametrize(
    ("keys", "changes", "said"),
    [
        (["scoring", "attention"], {"queries": ["cross_query0", "q9"]}, r"target\.onnx does not give q9"),
        (["scoring", "attention"], {"keys": ["cross_key0", "states2"]}, r"target\.onnx does not give states2"),
        (["scoring", "attention", "within"], {"layers": [["a", "b"]]}, r"target\.onnx does not give a"),
        (["scoring", "target"], {"file": "decoder.onnx"}, r"decoder\.onnx does not give states"),
        (["scoring", "log_probs"], {"file": "target.onnx"}, r"target\.onnx does not give log_probs"),
        (["source_attention"], {"file": "encoder.onnx"}, r"encoder\.onnx does not give attention"),
        (["cross_query"], {"name": "q"}, r"decoder\.onnx does not give q"),
        (["logits"], {"name": "numbers"}, r"(logits|decoder)\.onnx does not give numbers"),
        ([], {"hidden": "seen"}, r"encoder\.onnx does not give seen"),
    ],
)
def test_a_name_that_a_graph_does_not_have_is_refused(
    copy: Path, keys: list[str], changes: dict[str, Any], said: str
) -> None:
    edit_manifest(copy, in_graphs(*keys, **changes))
    package = Package.open(copy)
    with pytest.raises(PackageError, match=rf"{copy}/{said}, which the manifest declares; it gives \w+(, \w+)*: "):
        package.graphs()
