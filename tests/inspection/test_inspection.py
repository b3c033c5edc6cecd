"""The numbers of a report are those of transformers, over the same random Marian model."""

import io
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.request import urlopen
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForSeq2SeqLM

from export.verification.reference import TransformersModel
from inspection.__main__ import main
from inspection.beams import draw_search
from inspection.drawing import as_image
from inspection.findings import Findings, Wanted
from inspection.inspect import inspect
from inspection.page import pictures, report
from inspection.sections import entropy, next_tokens
from inspection.tree import Fate, Node, best_path, levels
from models.package.folder import Package
from tests.oracles import HuggingFace

TEXT = "Where does a train with <b>many</b> cars go?"
WANTED = Wanted(TEXT, beams=4, alternatives=6, max_new_tokens=16)
NEAR = 2e-4


@pytest.fixture(scope="module")
def source_ids(tiny_package: Package) -> tuple[int, ...]:
    return tuple(tiny_package.tokenizer().encode(TEXT))


@pytest.fixture(scope="module")
def findings(tiny_package: Package) -> Findings:
    return inspect(tiny_package.folder, WANTED)


def test_heads_look_where_transformers_says(
    findings: Findings, source_ids: tuple[int, ...], tiny_checkpoint: Path
) -> None:
    fed = [findings.tree.token, *findings.hypotheses[0].token_ids[:-1]]
    theirs = TransformersModel(tiny_checkpoint).attention(source_ids, fed)
    encoder, decoder, itself = (found.numpy() for found in theirs if found is not None)
    assert findings.source_attention is not None and findings.target_attention is not None
    assert findings.looking_back is not None
    np.testing.assert_allclose(findings.looking_back, itself, atol=NEAR)
    np.testing.assert_allclose(findings.source_attention, encoder, atol=NEAR)
    np.testing.assert_allclose(findings.target_attention, decoder, atol=NEAR)
    exact = torch.distributions.Categorical(probs=torch.from_numpy(decoder)).entropy().numpy() / np.log(2)
    np.testing.assert_allclose(entropy(findings.target_attention), exact, atol=1e-2)


@torch.no_grad()
def test_states_are_those_of_the_last_layer(
    findings: Findings, source_ids: tuple[int, ...], tiny_checkpoint: Path
) -> None:
    fed = [findings.tree.token, *findings.hypotheses[0].token_ids[:-1]]
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_checkpoint).eval()
    theirs = model(torch.tensor([source_ids]), decoder_input_ids=torch.tensor([fed]), output_hidden_states=True)
    assert findings.states is not None
    np.testing.assert_allclose(findings.states, theirs.decoder_hidden_states[-1][0], atol=NEAR)
    page = report(findings)
    for norm in np.linalg.norm(findings.states, axis=1):
        assert f">{norm:.2f}<" in page


def test_results_and_scores_are_those_of_generate(
    findings: Findings, source_ids: tuple[int, ...], tiny_checkpoint: Path, tiny_package: Package
) -> None:
    decoding = tiny_package.manifest.generation.decoding()
    decoding = replace(decoding, num_beams=4, num_return_sequences=4, max_new_tokens=WANTED.max_new_tokens or 0)
    [theirs] = HuggingFace(tiny_checkpoint).generate([source_ids], decoding)
    assert len(theirs) == 4
    for ours, scored in zip(findings.hypotheses, theirs, strict=True):
        assert ours.token_ids == tuple(scored[0])
        assert ours.score == pytest.approx(scored[1], abs=NEAR)


def test_every_branch_has_the_probabilities_of_transformers(
    findings: Findings, source_ids: tuple[int, ...], tiny_checkpoint: Path
) -> None:
    """Of hypotheses that died, too; and the alternatives at every step of the best one."""
    model = AutoModelForSeq2SeqLM.from_pretrained(tiny_checkpoint).eval()
    paths = [node.path for level in levels(findings.tree) for node in level if not node.children]
    fed = torch.full((len(paths), max(map(len, paths))), findings.tree.token)
    for row, path in enumerate(paths):
        fed[row, 1 : len(path)] = torch.tensor([node.token for node in path[:-1]])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([source_ids] * len(paths)), decoder_input_ids=fed).logits
    log_probs = logits.log_softmax(2)
    known = 0
    for row, path in enumerate(paths):
        for place, node in enumerate(path):
            if node.log_prob is not None:
                assert node.log_prob == pytest.approx(log_probs[row, place, node.token].item(), abs=NEAR)
                known += 1
    assert known > 40 and {node.fate for node in nodes(findings.tree)} == set(Fate)
    best = next(row for row, path in enumerate(paths) if path[-1].rank == 0)
    for place, node in enumerate(best_path(findings.tree)):
        assert node.parent is not None
        if node.parent.step is None:  # the last of a target that may be no longer is forced
            assert node.token == findings.hypotheses[0].token_ids[-1] and place + 1 == WANTED.max_new_tokens
            continue
        step, row = findings.steps[node.parent.step], node.parent.row
        expected = log_probs[best, place].topk(WANTED.alternatives)
        assert step.token_ids[row, : WANTED.alternatives].tolist() == expected.indices.tolist()
        np.testing.assert_allclose(step.log_probs[row, : WANTED.alternatives], expected.values, atol=NEAR)


def test_the_tree_has_the_beams_of_every_step(findings: Findings) -> None:
    for level in levels(findings.tree)[1:]:
        assert len([node for node in level if node.step is not None]) <= WANTED.beams
    results = sorted((node for node in nodes(findings.tree) if node.rank is not None), key=lambda node: node.rank or 0)
    assert [tuple(step.token for step in node.path) for node in results] == [
        one.token_ids for one in findings.hypotheses
    ]
    for node, one in zip(results, findings.hypotheses, strict=True):
        assert node.total == pytest.approx(sum(one.log_probs), abs=NEAR)


def test_a_target_may_have_more_tokens_than_python_has_depth() -> None:
    """As of a model with 1,024 positions that does not end by itself."""
    root = last = Node(0, 0, None, 0.0, None)
    for depth in range(1, 2001):
        child = Node(depth, 1, -0.5, -0.5 * depth, last)
        last.children.append(child)
        last = child
    last.rank, last.score = 0, -0.5
    assert [node.depth for node in best_path(root)] == [*range(1, 2001)]
    assert len(draw_search(root, ["a", "b"]).findall("path")) == 2000


def test_more_next_tokens_than_a_step_finds_take_no_room(tiny_package: Package) -> None:
    found = inspect(tiny_package.folder, Wanted(TEXT, beams=1, alternatives=10**6, max_new_tokens=2))
    most = tiny_package.manifest.graphs.most_candidates
    assert found.wanted.alternatives == most
    section = next_tokens(found)
    assert section is not None
    assert [len(row) for row in section.iter("tr")] == [most + 3, most + 3, 3]  # the last token is forced


def nodes(root: Node) -> Iterator[Node]:
    for level in levels(root):
        yield from level


class Outside(HTMLParser):
    """What a page would load, and the text that it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.shown: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        links = [value or "" for name, value in attrs if name in ("href", "src", "data", "action")]
        self.loaded += [tag] if tag in ("script", "link", "iframe") else []
        self.loaded += [link for link in links if not link.startswith("data:image/png;base64,")]

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


def test_the_page_takes_nothing_from_elsewhere_and_shows_all_of_it(findings: Findings) -> None:
    page = report(findings)
    read = Outside()
    read.feed(page)
    assert read.loaded == [] and "url(" not in page and "@import" not in page
    assert "prefers-color-scheme: dark" in page and "color-scheme: light dark" in page
    shown = " ".join(read.shown)
    assert TEXT in shown
    for one, text in zip(findings.hypotheses, findings.texts, strict=True):
        assert text in shown and f"{one.score:.4f}" in shown
    for title in (
        "Tokens",
        "Encoder: where",
        "Decoder: where",
        "what was fed before",
        "Entropy",
        "Next tokens",
        "The search",
    ):
        assert title in shown
    assert page.count("<image ") == findings_maps(findings)


def findings_maps(findings: Findings) -> int:
    """A map for every head of every layer, and one for the mean of each layer."""
    all_of_them = (findings.source_attention, findings.target_attention, findings.looking_back)
    return sum(weights.shape[0] * (weights.shape[1] + 1) for weights in all_of_them if weights is not None)


def test_pictures_are_files_of_their_own(findings: Findings) -> None:
    files = pictures(findings)
    assert files.keys() == {"encoder.svg", "decoder.svg", "looking_back.svg", "search.svg"}
    for content in files.values():
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"


def test_pictures_of_a_text_with_control_characters_are_xml(tiny_package: Package) -> None:
    files = pictures(inspect(tiny_package.folder, Wanted("a\x00 \x1b[1m \ufffe <b>", max_new_tokens=5)))
    for content in files.values():
        assert ElementTree.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_map_has_a_dot_for_every_weight() -> None:
    weights = np.random.default_rng(1).random((3, 5), np.float32)
    with urlopen(as_image(weights)) as data:
        alpha = np.asarray(Image.open(io.BytesIO(data.read())).convert("RGBA"))[:, :, 3]
    np.testing.assert_allclose((alpha / 255) ** 2, weights, atol=0.005)


def test_the_command_writes_a_page_and_says_what_it_cannot_show(
    tiny_package: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, folder = tmp_path / "page.html", tmp_path / "pictures"
    arguments = [str(tiny_package.folder), TEXT, "--out", str(page), "--beams", "1", "--max-new-tokens", "5"]
    assert main([*arguments, "--pictures", str(folder)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert {file.name for file in folder.iterdir()} == {"encoder.svg", "decoder.svg", "looking_back.svg", "search.svg"}
    capsys.readouterr()
    assert main([str(tiny_package.folder), "a " * 2000, "--out", str(page)]) == 2
    assert "tokens; the model takes" in capsys.readouterr().err
    assert main([str(tmp_path), TEXT]) == 2


def test_what_cannot_be_written_is_named(
    tiny_package: Package, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tiny_package.folder), TEXT, "--max-new-tokens", "5"]
    assert main([*arguments, "--out", "/dev/full"]) == 2
    assert capsys.readouterr().err == "error: /dev/full cannot be written (No space left on device); give another\n"
    page = tmp_path / "encoder.svg"
    assert main([*arguments, "--out", str(page), "--pictures", str(tmp_path)]) == 2
    assert f"{page} would be the page and a picture of it" in capsys.readouterr().err
    assert not page.exists()
    page.write_text("not a folder", encoding="utf-8")
    assert main([*arguments, "--out", str(tmp_path / "page.html"), "--pictures", str(page)]) == 2
    assert capsys.readouterr().err == f"error: {page} cannot be a folder (File exists); give --pictures another\n"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--length-penalty", "nan"], "length_penalty is nan; it must be from -10.0 to 10.0 and finite"),
        (["--beams", "65"], "num_beams is 65; it must be from 1 to 64"),
        (["--max-new-tokens", "100000"], "max_new_tokens is 100000; it must be from 1 to "),
        (["--source-language", "xx"], "the source language is xx; there are "),
        (["--target-language", "xx"], "the target language is xx; there are "),
    ],
)
def test_what_no_search_has_is_refused(
    asked: list[str], told: str, tiny_package: Package, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tiny_package.folder), TEXT, *asked]) == 2
    assert told in capsys.readouterr().err


def test_languages_may_be_named_as_in_requests(tiny_package: Package) -> None:
    source, target = tiny_package.manifest.source_languages[0], tiny_package.manifest.target_languages[0]
    asked = replace(WANTED, source_language=f"{source.upper()}-Latn-x-old", target_language=f"{target}_XX")
    found = inspect(tiny_package.folder, asked).wanted
    assert (found.source_language, found.target_language) == (source, target)


def test_a_text_that_is_no_utf_8_is_refused(tiny_package: Package, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tiny_package.folder), "caf\udce9"]) == 2
    assert capsys.readouterr().err == "error: the text is not UTF-8: character 4 is not whole\n"


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_text_of_nothing_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["package", text])
    assert f"argument TEXT: none of its {len(text)} characters is visible; give one" in capsys.readouterr().err


def test_numbers_are_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["package", TEXT, "--beams", "many"])
    assert "argument --beams: many is no whole number above 0" in capsys.readouterr().err


def test_standard_output_is_no_file_of_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["package", "text", "--out", "-"])
    assert "argument --out: - would be a file of this name; /dev/stdout is standard" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [(["", TEXT], "PACKAGE"), (["x", TEXT, "--out", ""], "--out"), (["x", TEXT, "--pictures="], "--pictures")],
)
def test_an_empty_path_is_not_the_current_folder(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"argument {what}: is empty; leave it out" in capsys.readouterr().err
