"""models.checkpoint.classifiers: probabilities of labels are transformers', and other heads are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
)

from models.checkpoint import CheckpointError
from models.checkpoint.encoders import load
from tests.checkpoints import edit_json
from tests.models.checkpoint.encoders.saved import PIECES, SHAPE, bert, write

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "other"]
TONES = ["good", "bad", "neither"]


def named(labels: list[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: index for index, label in enumerate(labels)}}


HEADS: dict[str, Callable[[], Any]] = {
    "bert": lambda: BertForSequenceClassification(bert(**named(TONES))),
    "bert, several at once": lambda: BertForSequenceClassification(
        bert(**named(TONES), problem_type="multi_label_classification")
    ),
    "bert, one label": lambda: BertForSequenceClassification(bert(num_labels=1)),
    "bert of tokens": lambda: BertForTokenClassification(bert(**named(TAGS))),
    "roberta": lambda: RobertaForSequenceClassification(RobertaConfig(**SHAPE, pad_token_id=1, **named(TONES))),
    "roberta of tokens": lambda: RobertaForTokenClassification(RobertaConfig(**SHAPE, pad_token_id=1, **named(TAGS))),
    "distilbert": lambda: DistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=PIECES, dim=36, n_layers=2, n_heads=3, hidden_dim=40, **named(TONES))
    ),
}


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_probabilities_are_those_of_transformers(head: str, tmp_path: Path) -> None:
    model = HEADS[head]()
    saved = write(tmp_path / "tiny", model)
    checkpoint, ids = load(saved.folder), torch.randint(4, PIECES, (1, 9))
    assert checkpoint.classifier is not None
    assert list(checkpoint.classifier.spec.labels) == list(model.config.id2label.values())
    hidden = checkpoint.model.encode(ids, torch.tensor([9]))[0].numpy()
    found = checkpoint.classifier.probabilities(checkpoint.classifier.encoding.of(hidden))
    logits = model.eval()(ids).logits[0]
    expected = logits.sigmoid() if len(logits) == 1 or "several" in head else logits.softmax(-1)
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=0)


def test_labels_without_names_are_counted(tmp_path: Path) -> None:
    saved = write(tmp_path / "tiny", HEADS["bert"]())
    saved.config(id2label=None, num_labels=3)
    classifier = load(saved.folder).classifier
    theirs = AutoConfig.from_pretrained(saved.folder).id2label
    assert classifier is not None and list(classifier.spec.labels) == list(theirs.values())


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (HEADS["bert, one label"], {"tokenizer_class": "BertTokenizer"}),
        (HEADS["bert, one label"], {"model_input_names": ["input_ids", "attention_mask"]}),
        (
            lambda: RobertaForSequenceClassification(
                RobertaConfig(**SHAPE, pad_token_id=0, type_vocab_size=2, num_labels=1)
            ),
            {"model_input_names": ["input_ids", "attention_mask"]},
        ),
    ],
    ids=["bert", "bert without types", "roberta"],
)
@torch.no_grad()
def test_a_cross_encoder_as_sentence_transformers_saves_it_has_its_scores(
    model: Callable[[], Any], settings: dict[str, object], tmp_path: Path
) -> None:
    """Which of two texts a token is of, the tokenizer of transformers says to some models and not to others."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = write(tmp_path / "tiny", model()).folder
    edit_json(folder / "tokenizer_config.json", **settings)
    theirs = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    theirs.save_pretrained(str(tmp_path / "saved"))
    checkpoint = load(tmp_path / "saved")
    assert checkpoint.classifier is not None
    ids = checkpoint.open_tokenizer().encode_pair("A cat.", "Where is the dog?")
    hidden = checkpoint.model.encode(torch.tensor([ids]), torch.tensor([len(ids)]))[0].numpy()
    found = checkpoint.classifier.probabilities(checkpoint.classifier.encoding.of(hidden))
    assert found == pytest.approx(theirs.predict([("A cat.", "Where is the dog?")]), abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"problem_type": "regression"}, "problem_type is 'regression', which gives a number and no labels"),
        ({"id2label": {"0": "good", "2": "bad"}}, "id2label has 2 labels and no 1"),
        ({"id2label": {"0": "good"}}, "classifier.weight has shape [3, 36]; expected [1, 36]"),
        ({"architectures": ["BertForQuestionAnswering"]}, "classifier.bias"),
    ],
)
def test_heads_that_are_not_understood_are_refused(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    saved = write(tmp_path / "tiny", HEADS["bert"]())
    saved.config(**changes)
    with pytest.raises(CheckpointError) as caught:
        load(saved.folder)
    assert told in str(caught.value)
