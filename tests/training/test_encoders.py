"""training.encoders: BERT's losses are those of transformers, and what is trained is exported and labels."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    pipeline,
)

from dragoman.local import Translator
from export.__main__ import main as export
from models.checkpoint.encoders import load
from tests.training.experiments import toml
from training.data.batches import make_batch
from training.data.text import Corpus
from training.distill import main as distill
from training.encoders.__main__ import main
from training.encoders.config import EncoderExperiment, EncoderShape, Masking, WordPieces
from training.encoders.model import Encoder
from training.encoders.objective import Pretraining
from training.encoders.run import begin, new_config
from training.encoders.text import UNLABELLED, Vocabulary, corpus, sentence_pairs, train_vocabulary
from training.encoders.writer import write_encoder
from training.examples.labelled_words import Labelled, documents, make_sentences, tagged, words_of

LABELLED = make_sentences(300, seed=5)
SENTENCES = [sentence for _, sentence in LABELLED]
SHAPE = EncoderShape(width=32, layers=2, heads=4, ffn=64, max_positions=64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("text") / "vocabulary"
    train_vocabulary(folder, WordPieces(size=160), SENTENCES)
    return folder


@pytest.fixture(scope="module")
def vocabulary(folder: Path) -> Vocabulary:
    return Vocabulary.load(folder)


@pytest.fixture(scope="module")
def pairs(vocabulary: Vocabulary, folder: Path) -> Corpus:
    file = folder.with_name("lines.txt")
    file.write_text("\n".join(["An old house.", "", *SENTENCES[:40], "", "", *SENTENCES[40:50], ""]))
    return corpus(sentence_pairs(file, vocabulary, 40), str(file))


def pretraining(vocabulary: Vocabulary, pairs: Corpus, **masking: float) -> Pretraining:
    torch.manual_seed(3)
    model = Encoder(new_config(SHAPE, vocabulary), "mlm")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() == 1 and len(parameter) == SHAPE.width:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            parameter.copy_(parameter.half().float())  # as it is written
        model.token_types.normal_().copy_(model.token_types.half().float())
    return Pretraining(model, vocabulary, Masking(**masking), pairs)


def test_documents_are_pairs_of_sentences_that_follow_each_other(pairs: Corpus, vocabulary: Vocabulary) -> None:
    assert len(pairs) == 39 + 9
    assert pairs.source[1].tolist() == vocabulary.tokenizer.encode_target(SENTENCES[1])[:18]
    assert pairs.source[1].tolist() == pairs.target[0].tolist()
    assert pairs.source[39].tolist() == vocabulary.tokenizer.encode_target(SENTENCES[40])[:18]


@torch.no_grad()
def test_losses_are_those_of_transformers(pairs: Corpus, vocabulary: Vocabulary, folder: Path, tmp_path: Path) -> None:
    objective = pretraining(vocabulary, pairs)
    batch = make_batch(pairs, torch.arange(12).numpy(), objective.model.config)
    ids, lengths, types, other = objective.pairs(batch, None)
    assert set(other.tolist()) == {0, 1}
    seen, hidden = objective.hide(ids, lengths, None)
    words = torch.where(hidden, ids, UNLABELLED)
    write_encoder(tmp_path, objective.model, (), folder)
    theirs = BertForPreTraining.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert set(AutoTokenizer.from_pretrained(tmp_path)("A cat.", "A dog.")["token_type_ids"]) == {0, 1}
    mask = torch.arange(ids.shape[1]) < lengths.unsqueeze(1)
    expected = theirs(seen, mask, types, labels=words, next_sentence_label=other)
    assert objective.loss(seen, lengths, types, words, other).item() == pytest.approx(expected.loss.item(), abs=1e-4)
    going_on = EncoderExperiment.model_validate(
        {
            "output": tmp_path,
            "objective": "mlm",
            "start": tmp_path,
            "data": {"train": [tmp_path], "validation": tmp_path},
            "training": {"max_steps": 1},
        }
    )
    again = Pretraining(begin(going_on, vocabulary, 0), vocabulary, Masking(), pairs)
    assert again.loss(seen, lengths, types, words, other).item() == pytest.approx(expected.loss.item(), abs=1e-4)


@torch.no_grad()
def test_pairs_are_as_the_tokenizer_joins_them(pairs: Corpus, vocabulary: Vocabulary, folder: Path) -> None:
    batch = make_batch(pairs, torch.arange(5).numpy(), new_config(SHAPE, vocabulary))
    ids, lengths, types, other = pretraining(vocabulary, pairs).pairs(batch, torch.Generator().manual_seed(1))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row, length in enumerate(lengths.tolist()):
        second = ids[row, len(pairs.source[row]) + 2 : length - 1].tolist()
        assert other[row] or second == pairs.target[row].tolist()
        texts = [vocabulary.tokenizer.decode(side) for side in (pairs.source[row].tolist(), second)]
        expected = tokenizer(*texts, return_token_type_ids=True)
        assert ids[row, :length].tolist() == expected["input_ids"]
        assert types[row, :length].tolist() == expected["token_type_ids"]


def test_whole_words_are_hidden(pairs: Corpus, vocabulary: Vocabulary) -> None:
    objective = pretraining(vocabulary, pairs, words=0.3, masked=0.5, random=0.3)
    batch = make_batch(pairs, torch.arange(48).numpy(), objective.model.config)
    ids, lengths, _, _ = objective.pairs(batch, None)
    torch.manual_seed(4)
    seen, hidden = objective.hide(ids, lengths, None)
    is_token = torch.arange(ids.shape[1]) < lengths.unsqueeze(1)
    continues = torch.from_numpy(vocabulary.continues)[ids] & is_token
    assert continues.sum() > 100
    assert torch.equal(hidden[:, 1:][continues[:, 1:]], hidden[:, :-1][continues[:, 1:]])  # as the piece before it
    assert not hidden[~is_token].any() and not hidden[(ids == vocabulary.cls_id) | (ids == vocabulary.sep_id)].any()
    assert torch.equal(seen[~hidden], ids[~hidden])
    found = seen[hidden]
    share = hidden.sum() / is_token.sum()
    masked = (found == vocabulary.mask_id).float().mean()
    same = (found == ids[hidden]).float().mean()
    assert 0.15 < share < 0.4 and 0.35 < masked < 0.65 and 0.1 < same < 0.35


def test_the_same_words_are_hidden_in_every_validation(pairs: Corpus, vocabulary: Vocabulary) -> None:
    objective = pretraining(vocabulary, pairs).eval()
    batch = make_batch(pairs, torch.arange(12).numpy(), objective.model.config)
    assert objective(batch)[0].item() == objective(batch)[0].item()
    assert objective.train()(batch)[0].item() != objective(batch)[0].item()


def experiment(folder: Path, objective: str, train: Iterable[str], held_out: Iterable[str], **more: object) -> Path:
    """Its file. `train`, `held_out`: lines."""
    folder.mkdir()
    for name, lines in (("train", train), ("valid", held_out)):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    settings = {
        "output": str(folder / "run"),
        "objective": objective,
        "data": {"train": [str(folder / "train.txt")], "validation": str(folder / "valid.txt"), "max_tokens": 60},
        "batches": {"tokens": 512},
        "optimizer": {"peak_learning_rate": 4e-3, "warmup_steps": 10, "cooldown_steps": 60},
        "training": {"max_steps": 120, "dropout": 0.0, "label_smoothing": 0.0},
        "validation": {"every_steps": 120},
        "checkpoints": {"every_steps": 120, "average": 1},
        **more,
    }
    file = folder / "experiment.toml"
    file.write_text("\n".join(f"{key} = {toml(value)}" for key, value in settings.items()))
    return file


SCRATCH = {"vocabulary": {"size": 160}, "model": SHAPE.model_dump()}


@pytest.mark.timeout(600)
def test_a_text_is_learnt_then_labels_of_texts_and_of_words(tmp_path: Path) -> None:
    """Pre-trained, then both heads; transformers reads what is written, and so does the export."""
    torch.set_num_threads(1)
    parts = LABELLED[:260], LABELLED[260:]

    def learn(objective: str, lines: Callable[[Sequence[Labelled]], Iterable[str]], **more: object) -> Path:
        training, held_out = map(lines, parts)
        assert main([str(experiment(tmp_path / objective, objective, training, held_out, **more))]) == 0
        return tmp_path / objective / "run" / "model"

    start = str(learn("mlm", documents, **SCRATCH))
    of_texts = learn("text", lambda part: [f"{kind}\t{text}" for kind, text in part], start=start)
    of_words = learn("tokens", lambda part: [line for _, text in part for line in tagged(text)], start=start)
    for folder, labels in ((of_texts, ("count", "date", "time")), (of_words, ("B-NUMBER", "B-THING", "I-NUMBER", "O"))):
        checkpoint = load(folder)
        assert checkpoint.classifier is not None and checkpoint.classifier.spec.labels == labels

    tokenizer = AutoTokenizer.from_pretrained(of_texts)
    classifier = BertForSequenceClassification.from_pretrained(of_texts, dtype=torch.float32).eval()
    tagger = BertForTokenClassification.from_pretrained(of_words, dtype=torch.float32).eval()
    right, tags = list[bool](), list[bool]()
    for kind, text in parts[1]:
        whole = classifier(**tokenizer(text, return_tensors="pt")).logits
        right.append(classifier.config.id2label[int(whole.argmax())] == kind)
        given = tokenizer(words_of(text), is_split_into_words=True, return_tensors="pt")
        found = [tagger.config.id2label[int(label)] for label in tagger(**given).logits[0].argmax(-1)]
        words, expected = given.word_ids(), [line.partition("\t")[2] for line in tagged(text) if line]
        tags += [found[words.index(word)] == tag for word, tag in enumerate(expected)]
    assert sum(right) > 0.8 * len(right) and sum(tags) > 0.8 * len(tags)
    texts = [text for _, text in parts[1]]
    check_labels_of_texts(exported(of_texts, texts), of_texts, texts)
    package = exported(of_words, texts)
    check_labels_of_words(package, of_words, texts)
    assert (
        distill([str(package), "--source", str(package.with_name("samples.txt")), "--out", str(tmp_path / "out")]) == 2
    )


def exported(folder: Path, texts: Sequence[str]) -> Path:
    """Its package."""
    package, samples = folder.with_name("package"), folder.with_name("samples.txt")
    samples.write_text("\n".join(texts))
    arguments = ["--samples", str(samples), "--verify-samples", "4", "--quiet"]
    assert export([str(folder), "--out", str(package), *arguments]) == 0
    return package


@torch.no_grad()
def check_labels_of_texts(package: Path, folder: Path, texts: list[str]) -> None:
    """All of them, with their probabilities, are those of transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with Translator(package, workers=1) as translator:
        found = translator.classify(texts)
    for text, ours in zip(texts, found, strict=True):
        expected = model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(0).sort(descending=True)
        assert [label.name for label in ours.labels] == [model.config.id2label[int(i)] for i in expected.indices]
        probabilities = [label.probability for label in ours.labels]
        assert probabilities == pytest.approx(expected.values.tolist(), abs=1e-5)
    assert len({one.labels[0].name for one in found}) == 3


def check_labels_of_words(package: Path, folder: Path, texts: list[str]) -> None:
    """Entities, where they begin and end, and their probabilities are those of the pipeline of transformers."""
    model = BertForTokenClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = pipeline("token-classification", model, tokenizer=tokenizer, aggregation_strategy="simple", device="cpu")
    with Translator(package, workers=1) as translator:
        found = translator.classify(texts, grouping="entities")
    for ours, expected in zip(found, theirs(texts), strict=True):
        spans = [(span.begin, span.end, span.labels[0].name) for span in ours.spans]
        assert spans == [(entity["start"], entity["end"], entity["entity_group"]) for entity in expected]
        probabilities = [span.labels[0].probability for span in ours.spans]
        assert probabilities == pytest.approx([float(entity["score"]) for entity in expected], abs=1e-5)
    assert {span.labels[0].name for one in found for span in one.spans} == {"NUMBER", "THING"}


@pytest.mark.parametrize(
    ("objective", "lines", "told"),
    [
        ("text", ["good A cat."], "line 1 is 'good A cat.'; expected a label, a tab and a text"),
        ("tokens", ["A\tO", "cat"], "line 2 is 'cat'; expected a word, a tab and a label"),
        ("text", [f"good\t{'two ' * 80}", "bad\tA cat."], "text 1 has 82 tokens; data.max_tokens is 60"),
        ("mlm", ["One sentence.", "", "Another."], "has nothing to learn from"),
        ("text", ["good\tA cat.", "good\tA dog."], "has the label 'good'; at least two are to be told apart"),
    ],
)
def test_what_cannot_be_learnt_is_refused(
    objective: str, lines: list[str], told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = experiment(tmp_path / "run", objective, lines, lines, **SCRATCH)
    assert main([str(file)]) == 2
    assert told in " ".join(capfd.readouterr().err.split())


def test_an_encoder_has_no_bleu_to_be_enough(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    validation = {"every_steps": 20, "enough": 99.0}
    assert main([str(experiment(tmp_path / "run", "text", [], [], **SCRATCH, validation=validation))]) == 2
    assert "validation.enough is the BLEU of translations" in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize("vocabulary", [{"size": 20}, {"size": 60, "lowercase": False}])
def test_another_vocabulary_is_refused(
    vocabulary: dict[str, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["good\tA large cat.", "bad\tA small dog."] * 4
    asked: dict[str, Any] = SCRATCH | {
        "vocabulary": {"size": 60},
        "training": {"max_steps": 20, "device": "cpu", "threads": 1},
    }
    assert main([str(experiment(tmp_path / "first", "text", lines, lines, **asked))]) == 0
    asked |= {"vocabulary": vocabulary, "output": str(tmp_path / "first" / "run")}
    assert main([str(experiment(tmp_path / "then", "text", lines, lines, **asked))]) == 2
    now = f"size = {vocabulary['size']} and lowercase = {toml(vocabulary.get('lowercase', True))}"
    assert f" and lowercase = true; [vocabulary] asks for {now} now." in " ".join(capfd.readouterr().err.split())
