"""models.package.graph_tensors: graphs that no run may have asked yet take and give what the manifest declares."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from models.package.checked import PackageError
from models.package.declared.elements import DOUBLE, FLOAT, INT32, INT64
from models.package.declared.inputs_outputs import Tensor
from models.package.folder import Package, file_entries
from models.package.graph_tensors import operators, tensors
from tests.models.package.test_package import edit_manifest, in_graphs


def read(values: Sequence[onnx.ValueInfoProto]) -> dict[str, Tensor]:
    """As the package of ONNX reads them."""
    of_type = {value.name: value.type.tensor_type for value in values}
    axes = {name: tuple(axis.dim_param or axis.dim_value for axis in of.shape.dim) for name, of in of_type.items()}
    return {name: Tensor(of.elem_type, axes[name]) for name, of in of_type.items()}


def test_they_are_those_that_onnx_reads(tiny_package: Package) -> None:
    files = [graph.file for graph in tiny_package.manifest.graphs.files]
    assert len(files) > 5
    for file in (tiny_package.folder / name for name in files):
        graph = onnx.load(file, load_external_data=False).graph
        assert tensors(file.read_bytes()) == (read(graph.input), read(graph.output))
        assert list(tensors(file.read_bytes())[1]) == [output.name for output in graph.output]
        assert operators(file.read_bytes()) == {node.op_type.encode() for node in graph.node}


@pytest.mark.parametrize("data", [b"", b"\xff", b"no model", b"\x3a\xff\x01", b"\x3a\x03\x62\xff\x01"])
def test_what_is_no_model_has_none(data: bytes) -> None:
    assert tensors(data) == ({}, {})


@pytest.mark.parametrize("value", [b"", b"\x12\x01\xff", b"\x12\x02\x0a\x00", b"\x12\x04\x0a\x02\x12\xff"])
def test_what_a_graph_does_not_say_of_a_tensor_is_not_known(value: bytes) -> None:
    named = b"\x0a\x01x" + value
    graph = b"\x62" + bytes([len(named)]) + named
    _, gives = tensors(b"\x3a" + bytes([len(graph)]) + graph)
    assert gives == {"x": Tensor(0, None)} and gives["x"].fits(Tensor(FLOAT, ("rows", 3)))


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


@pytest.mark.parametrize("heads", [5, 7])
def test_heads_that_columns_cannot_be_of_are_refused(copy: Path, heads: int) -> None:
    edit_manifest(copy, in_graphs("scoring", "attention", "within", heads=heads))
    package = Package.open(copy)
    said = rf"target\.onnx gives self_query0 as fp32 .*, 48\]; it must be fp32 .*, {heads} \* n\]: "
    with pytest.raises(PackageError, match=said):
        package.graphs()


@pytest.mark.parametrize(
    ("file", "name", "wrong", "said"),
    [
        (
            "target.onnx",
            "sources",
            None,
            "does not take sources, which it is to be fed; it takes hidden, lengths, ",
        ),
        ("target.onnx", "ids", (INT32, ["t", "u"]), "takes ids as int32 .t, u.; it must be int64 .targets, target.:"),
        ("target.onnx", "hidden", (FLOAT, ["s", "t", 7]), "takes hidden as fp32 .s, t, 7.; it must be .* 48.:"),
        ("target.onnx", "states", (DOUBLE, ["t", "u", 48]), "gives states as fp64 .t, u, 48.; it must be fp32 "),
        ("target.onnx", "self_query1", (FLOAT, ["t", "u"]), "gives self_query1 as fp32 .t, u.; it must be "),
        ("target.onnx", "cross_key0", (FLOAT, ["t", 5, "u", 16]), "gives cross_key0 as .*; it must be .* 3, source, "),
        ("log_probs.onnx", "states", (FLOAT, ["tokens"]), "takes states as fp32 .tokens.; it must be "),
        ("log_probs.onnx", "log_probs", (INT64, ["tokens"]), "gives log_probs as int64 .tokens.; it must be fp32 "),
        ("source_attention.onnx", "lengths", None, "does not take lengths"),
        ("source_attention.onnx", "attention", (FLOAT, ["s", "t"]), "gives attention as fp32 .s, t.; it must be "),
        ("logits.onnx", "hidden", None, "does not take hidden"),
        ("logits.onnx", "logits", (16, ["rows", "n"]), "gives logits as bf16 .rows, n.; it must be fp32 "),
        (
            "decoder.onnx",
            "cross_query",
            (FLOAT, ["rows", 48, 1]),
            "gives cross_query as .*; it must be fp32 .rows, 48",
        ),
        (
            "decoder.onnx",
            "logits",
            (3, ["rows", "n"]),
            "gives logits as elements of type 3 .rows, n.; it must",
        ),
        ("encoder.onnx", "hidden", (FLOAT, ["s", "t"]), "gives hidden as fp32 .s, t.; it must be "),
    ],
)
def test_a_tensor_that_is_another_is_refused(
    copy: Path, file: str, name: str, wrong: tuple[int, list[int | str]] | None, said: str
) -> None:
    model = onnx.load(copy / file, load_external_data=False)
    [value] = (one for one in (*model.graph.input, *model.graph.output) if one.name == name)
    value.CopyFrom(onnx.helper.make_tensor_value_info(*(("other", 1, ["n"]) if wrong is None else (name, *wrong))))
    refused(copy, file, model, said)


def test_an_input_that_nobody_feeds_is_refused(copy: Path) -> None:
    model = onnx.load(copy / "log_probs.onnx", load_external_data=False)
    model.graph.input.append(onnx.helper.make_tensor_value_info("more", FLOAT, ["n"]))
    refused(copy, "log_probs.onnx", model, "takes more, which nobody feeds it: ")


@pytest.mark.parametrize("in_function", [False, True])
def test_a_graph_that_runs_others_is_refused(copy: Path, in_function: bool) -> None:
    """One may run for ever."""
    model = onnx.load(copy / "native_encoder.onnx", load_external_data=False)
    loop = onnx.helper.make_node("Loop", ["", "true"], ["out"], body=model.graph)
    if in_function:
        opsets = [onnx.helper.make_opsetid("", 21)]
        model.functions.append(onnx.helper.make_function("own", "Often", ["true"], ["out"], [loop], opsets))
    else:
        model.graph.node.append(loop)
    refused(copy, "native_encoder.onnx", model, "has the operator Loop, which no exported graph has: ")


def refused(folder: Path, file: str, model: onnx.ModelProto, said: str) -> None:
    """With this graph in the place of the package's."""
    (folder / file).write_bytes(model.SerializeToString())
    entry = {name: one.model_dump() for name, one in file_entries(folder).items() if name == file}
    edit_manifest(folder, lambda manifest: manifest["files"].update(entry))
    package = Package.open(folder)
    with pytest.raises(PackageError, match=f"{folder}/{file} {said}"):
        package.graphs()
