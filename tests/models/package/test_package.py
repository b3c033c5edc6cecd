"""A package opens only if it is whole."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from engine.devices.session import CPU, DeviceError
from engine.loading.load import Limits, Loadable, load
from models.package.checked import PackageError
from models.package.folder import MANIFEST, MOST_MANIFEST, Package, file_entries, sha256
from models.package.manifest import FORMAT_VERSION, TargetLanguage


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / MANIFEST
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def add_shortlist(shortlist: str, output: str) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> None:
        manifest["shortlist"] = shortlist
        manifest["graphs"]["output"] = {"file": output, "weight_bytes": 0}

    return change


def add_native(**changes: object) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> None:
        graphs = manifest["graphs"]
        native = {"operators": 1, "cache": graphs["cache"]} | changes
        for name in ("encoder", "decoder"):
            native.setdefault(name, {"file": f"{name}.onnx", "weight_bytes": 0})
        graphs["native"] = native

    return change


def in_graphs(*keys: str | int, **changes: object) -> Callable[[dict[str, Any]], object]:
    def change(manifest: dict[str, Any]) -> None:
        section: Any = manifest["graphs"]
        for key in keys:
            section = section[key]
        section.update(changes)

    return change


def refusal(folder: Path) -> str:
    with pytest.raises(PackageError) as error:
        Package.open(folder)
    return str(error.value)


def test_open_gives_what_was_written(tiny_package: Package, copy: Path) -> None:
    package = Package.open(copy)
    assert package.manifest == tiny_package.manifest
    assert package.sha256 == tiny_package.sha256 == sha256(copy / MANIFEST)
    assert package.graphs().encoder == copy / "encoder.onnx"
    assert package.graphs().decoder == copy / "decoder.onnx"
    assert package.tokenizer().encode("The cat")[-1] == package.manifest.model.end_id
    assert set(package.manifest.files) == {file.name for file in copy.iterdir()} - {MANIFEST}


def test_the_manifest_changes_with_any_file(tiny_package: Package, copy: Path) -> None:
    entry = tiny_package.manifest.files["weights.bin"]
    assert entry.sha256 == sha256(copy / "weights.bin")
    assert entry.size_bytes == (copy / "weights.bin").stat().st_size


def test_a_folder_that_is_no_package(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nothing")
    assert str(tmp_path / "nothing") in message
    assert "python -m export" in message


@pytest.mark.parametrize("name", ["encoder.onnx", "decoder.onnx", "weights.bin", "vocab.json", "source.spm"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    message = refusal(copy)
    assert str(copy / name) in message
    assert "export the checkpoint again" in message


def test_a_truncated_file_is_named_with_both_sizes(copy: Path) -> None:
    file = copy / "weights.bin"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    message = refusal(copy)
    assert str(file) in message
    assert f"it has {size - 1} bytes" in message
    assert f"says {size}" in message


def test_an_altered_file_is_named_with_both_hashes(tiny_package: Package, copy: Path) -> None:
    file = copy / "weights.bin"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    message = refusal(copy)
    assert str(file) in message
    assert sha256(file) in message
    assert tiny_package.manifest.files["weights.bin"].sha256 in message


def test_half_a_manifest(copy: Path) -> None:
    file = copy / MANIFEST
    file.write_text(file.read_text()[:-100])
    assert f"{file} is not JSON" in refusal(copy)


def test_what_a_decoder_is_told_of_languages_is_kept(copy: Path) -> None:
    assert Package.open(copy).manifest.languages == {}
    edit_manifest(copy, lambda manifest: manifest.update(languages={"pt": {"begin_id": 7, "start_id": 9}}))
    assert Package.open(copy).manifest.languages == {"pt": TargetLanguage(begin_id=7, start_id=9)}


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 0, None, "1", True, 2.0])
def test_another_format_version(copy: Path, version: object) -> None:
    edit_manifest(copy, lambda manifest: manifest.update(format_version=version))
    message = refusal(copy)
    assert f"has format version {version!r}" in message
    assert f"reads versions 1 and {FORMAT_VERSION}" in message


def test_a_manifest_that_is_no_object(copy: Path) -> None:
    (copy / MANIFEST).write_text("[]")
    assert "format version None" in refusal(copy)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda manifest: manifest.update(extra=1), "extra: "),
        (in_graphs(decoder=None), "graphs.decoder is null, and so is packed_encoder, which an encoder alone has"),
        (lambda manifest: manifest.update(prompt="a", prompts={"b": "b: "}), "prompt is 'a'; there are b"),
        (lambda manifest: manifest.update(languages={"de": {}}), "languages has de; target_languages are pt"),
        (
            lambda manifest: manifest.update(languages={"pt": {}}, target_languages=["pt", "es"]),
            "languages has no es, which is one of target_languages",
        ),
        (
            lambda manifest: manifest.update(languages={"pt": {"begin_id": 212}}),
            "languages.pt has token 212; the model has 212 target tokens",
        ),
        (lambda manifest: manifest.update(languages={"pt": {"start_id": -1}}), "languages.pt.start_id: "),
        (lambda manifest: manifest["model"].update(width="wide"), "model.width: "),
        (lambda manifest: manifest["model"].update(encoder_heads=5), "48 is not a multiple of 5 heads"),
        (
            lambda manifest: manifest["encoding"].update(max_tokens=513),
            "encoding.max_tokens is 513; the model takes ",
        ),
        (in_graphs("cross_query", scale=float("nan")), "graphs.cross_query.scale: Input should be a finite number"),
        (lambda manifest: manifest.update(target_languages=[""]), "target_languages has '', which is no tag"),
        (
            lambda manifest: manifest.update(source_languages=["en", "\n"]),
            r"source_languages has '\n', which is no tag",
        ),
        (in_graphs(probes=[{"source_ids": [5] * 513, "token_ids": [0], "score": 0.0}]), "a probe has 513 tokens; "),
        (lambda manifest: manifest["encoding"].update(dimensions=49), "dimensions is 49; a vector has 48 values"),
        (
            in_graphs(vector_probes=[{"source_ids": [1], "numbers": [0.5] * 49}]),
            "a probe has 49 numbers; a vector has 48",
        ),
        (lambda manifest: manifest.pop("certificate"), "certificate: Field required"),
        (lambda manifest: manifest["files"].pop("vocab.json"), "files has no entry for vocab.json"),
        (lambda manifest: manifest.update(shortlist="vocab.json"), "graphs.output is None and shortlist is vocab.json"),
        (add_shortlist("a", "b"), "files has no entry for a, b"),
        (add_native(decoder={"file": "a", "weight_bytes": 0}), "files has no entry for a"),
        (add_native(cache=[]), "cross_query.keys is cross_k1; the native cache has no tensors"),
        (in_graphs("cache", 0, axes=["rows", "rows"]), "rows must come first, and once"),
        (in_graphs("cache", 0, axes=["rows", "target", "source"]), "it can grow along one of them only"),
        (in_graphs("cache", 0, last="x"), "self_k0 has x, and no source axis"),
        (in_graphs("cache", 1, past="self_k0"), "a name stands twice among self_k0, self_k0"),
        (in_graphs("cross_query", keys="none"), "cross_query.keys is none; the cache has self_k0"),
        (in_graphs("precision", cache="int3"), "graphs.precision.cache: "),
        (in_graphs("vocabulary", pad_id=212), "pad_id is 212; the vocabulary has 212 tokens"),
        (in_graphs("vocabulary", end_id=10**9), "end_id is 1000000000; the vocabulary has 212 tokens"),
        (in_graphs("vocabulary", start_id=212), "start_id is 212; the vocabulary has 212 tokens"),
        (in_graphs("vocabulary", target_size=213), "model.target_vocab_size is 212; the graphs have 213"),
        (in_graphs(most_candidates=213), "most_candidates is 213; there are 212 target tokens"),
        (in_graphs(width=1), "model.width is 48; the graphs have 1"),
        (in_graphs(max_positions=10**9), "; the graphs have 1000000000"),
        (lambda manifest: manifest["model"].update(width=96), "model.width is 96; the graphs have 48"),
        (
            lambda manifest: manifest["model"].update(source_vocab_size=10**9, target_vocab_size=10**9),
            "model.source_vocab_size is 1000000000; the graphs have 212",
        ),
        (
            lambda manifest: manifest["generation"].update(suppressed_ids=[-1]),
            "generation has token -1; the model has 212 target tokens",
        ),
        (
            lambda manifest: manifest["generation"].update(forced_end_id=212),
            "generation has token 212; the model has 212 target tokens",
        ),
        (
            lambda manifest: manifest["generation"].update(suppressed_ids=list(range(1, 64))),
            "generation suppresses 63 tokens; of 64 candidates one must be left",
        ),
        (
            in_graphs(probes=[{"source_ids": [212, 0], "token_ids": [0], "score": 0.0}]),
            "a probe has token 212; the model has 212 source tokens",
        ),
        (
            in_graphs(probes=[{"source_ids": [5, 0], "token_ids": [-1], "score": 0.0}]),
            "a probe has token -1; the model has 212 target tokens",
        ),
        (
            in_graphs(probes=[{"source_ids": [5, 0], "token_ids": [7, 3], "score": 0.0}]),
            "vocabulary.end_id is 0; a probe ends with 3",
        ),
        (in_graphs(probes=[{"source_ids": [], "token_ids": [0], "score": 0.0}]), "a probe has no source tokens"),
        (
            in_graphs(aligner={"layer": 0, "heads": [99], "tokens": 2, "right": 1}),
            "aligner.heads has 99; the graph over targets tells of ",
        ),
        (
            lambda manifest: manifest["tokenizer"].update(normalization={"ab": "c"}),
            "normalization.ab.[key]: String should have at most 1 character",
        ),
        (lambda manifest: manifest["files"].update({"../x": manifest["files"]["vocab.json"]}), "files.../x"),
        (lambda manifest: manifest["files"]["vocab.json"].update(sha256="0"), "files.vocab.json.sha256: "),
    ],
)
def test_an_altered_manifest_says_where(copy: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    edit_manifest(copy, change)
    message = refusal(copy)
    assert str(copy / MANIFEST) in message
    assert said in message


def test_a_shortlist_that_is_none_is_refused(copy: Path) -> None:
    edit_manifest(copy, add_shortlist("vocab.json", "decoder.onnx"))
    with pytest.raises(PackageError, match=r"vocab\.json is no binary shortlist .*export the checkpoint again"):
        Package.open(copy).graphs()


def test_a_vocabulary_that_the_weights_have_no_room_for_is_refused(copy: Path) -> None:
    edit_manifest(copy, in_graphs("vocabulary", source_size=10**9, target_size=10**9))
    edit_manifest(copy, lambda content: content["model"].update(source_vocab_size=10**9, target_vocab_size=10**9))
    with pytest.raises(PackageError, match=r"1000000000 tokens of width \d+ take at least \d+ bytes, and the weights"):
        Package.open(copy)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_file_that_is_none_is_refused_and_not_read(copy: Path, kind: str) -> None:
    (copy / "decoder.onnx").unlink()
    (os.mkdir if kind == "folder" else os.mkfifo)(copy / "decoder.onnx")
    with pytest.raises(PackageError, match=r"decoder\.onnx is no file"):
        Package.open(copy)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, r"manifest\.json is no file"),
        (lambda file: file.symlink_to("/dev/zero"), r"manifest\.json is no file"),
        (lambda file: file.write_bytes(bytes(MOST_MANIFEST + 1)), "has more than 16777216 bytes"),
    ],
    ids=["pipe", "device", "huge"],
)
def test_a_manifest_that_has_no_end_is_refused_and_not_read(
    make: Callable[[Path], object], told: str, copy: Path
) -> None:
    (copy / MANIFEST).unlink()
    make(copy / MANIFEST)
    with pytest.raises(PackageError, match=told):
        Package.open(copy)


def test_graphs_are_what_they_were_checked_to_be(copy: Path) -> None:
    graphs = Package.open(copy).graphs()
    weights = copy / graphs.weights
    for file in (weights, copy / "decoder.onnx"):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + b"?")
        with pytest.raises(PackageError, match=f"{file.name} was changed: its SHA-256 is"):
            graphs.contents().graph("decoder.onnx")
        file.write_bytes(content)
    graphs.contents().graph("decoder.onnx")


def test_graphs_that_are_loaded_later_come_from_where_a_link_led(copy: Path, tmp_path: Path) -> None:
    """So new versions are put in place; this one may be refused, or be long in coming."""
    link, other = tmp_path / "current", tmp_path / "other"
    link.symlink_to(copy)
    graphs = Package.open(link).graphs()
    shutil.copytree(copy, other)
    (other / "weights.bin").write_bytes(b"other")
    link.unlink()
    link.symlink_to(other)
    assert graphs.contents().graph("target.onnx").content == (copy / "target.onnx").read_bytes()


def test_a_tokenizer_that_was_put_in_its_place_meanwhile_is_refused(copy: Path) -> None:
    package = Package.open(copy)
    package.tokenizer()
    file = copy / "vocab.json"
    pieces = json.loads(file.read_text())
    first, second = list(pieces)[10:12]
    pieces[first], pieces[second] = pieces[second], pieces[first]
    file.write_text(json.dumps(pieces))
    with pytest.raises(PackageError, match=r"vocab\.json was changed"):
        package.tokenizer()


def relisted(folder: Path) -> Package:
    """A package whose manifest has been made to say what its files are."""
    entries = {name: entry.model_dump() for name, entry in file_entries(folder).items() if name != MANIFEST}
    edit_manifest(folder, lambda manifest: manifest.update(files=entries))
    return Package.open(folder)


def test_a_graph_takes_weights_from_nowhere_but_the_weights(copy: Path) -> None:
    shutil.copy(copy / "weights.bin", copy / "other.bin")
    graph = onnx.load(copy / "decoder.onnx", load_external_data=False)
    for entry in (entry for tensor in graph.graph.initializer for entry in tensor.external_data):
        if entry.key == "location":
            entry.value = "other.bin"
    onnx.save(graph, copy / "decoder.onnx")
    with pytest.raises(Exception, match=r"External file: other\.bin not found from the table"):
        load(Loadable.of(relisted(copy)), CPU, Limits(), kernels="off")


@pytest.mark.parametrize("axis", [1, 3])
def test_a_cache_that_is_not_the_graphs_is_refused(copy: Path, axis: int) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["graphs"]["cache"][0]["axes"][axis] += 1

    edit_manifest(copy, change)
    with pytest.raises(PackageError, match=r"self_k0 of a graph is .*, and the manifest says"):
        load(Loadable.of(Package.open(copy)), CPU, Limits(), kernels="off")


def test_logits_that_are_not_the_graphs_are_refused(copy: Path) -> None:
    edit_manifest(copy, in_graphs("logits", size=7))
    with pytest.raises(PackageError, match=rf"{copy}/decoder\.onnx gives logits as .*; it must be fp32 \[rows, 7\]: "):
        Package.open(copy).graphs()


def test_hidden_states_that_are_not_the_graphs_are_refused(copy: Path) -> None:
    edit_manifest(copy, in_graphs(hidden="cross_k0"))
    with pytest.raises(
        PackageError, match=rf"{copy}/encoder\.onnx gives cross_k0 as .*; it must be fp32 \[sentences, "
    ):
        Package.open(copy).graphs()


def test_graphs_that_fail_with_anything_are_refused_with_their_folder(copy: Path) -> None:
    graph = onnx.load(copy / "encoder.onnx", load_external_data=False)
    for node in graph.graph.node:
        node.input[:] = ["sizes" if name == "lengths" else name for name in node.input]
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1 << 20]), "shape"))
    graph.graph.node.insert(0, onnx.helper.make_node("Reshape", ["lengths", "shape"], ["sizes"]))
    onnx.save(graph, copy / "encoder.onnx")
    with pytest.raises(DeviceError, match=rf"(?s){copy}: the graphs do not run \(Fail.*export the checkpoint again"):
        load(Loadable.of(relisted(copy)), CPU, Limits(), kernels="off")


def test_a_model_that_does_not_decode_is_told_with_its_folder(copy: Path) -> None:
    edit_manifest(copy, in_graphs("cache", 0, precision="fp16"))
    with pytest.raises(DeviceError, match=f"{copy}: the model does not decode: "):
        load(Loadable.of(Package.open(copy)), CPU, Limits(), kernels="off")


@pytest.mark.parametrize(
    ("changes", "token"),
    [({"end_id": 212}, 212), ({"end_id": -1}, -1), ({"source_id": 10**9}, 10**9), ({"source_ids": {"en": 500}}, 500)],
)
def test_a_tokenizer_of_tokens_that_the_model_lacks_is_refused(
    copy: Path, changes: dict[str, object], token: int
) -> None:
    edit_manifest(copy, lambda manifest: manifest["tokenizer"].update(changes))
    with pytest.raises(PackageError, match=rf"{copy}: the tokenizer gives .* the token {token}; the model has 212 "):
        Package.open(copy).tokenizer()


def test_packages_have_one_tokenizer_if_all_its_files_are_the_same() -> None:
    zoo = Path(__file__).parents[3] / "models" / "zoo"
    package, eight_bits, back = (Package.open(zoo / name) for name in ("en-pt", "en-pt-int8", "pt-en"))
    assert package.tokenizes_as(eight_bits)
    assert not package.tokenizes_as(back)
