"""models.checkpoint.classifiers: probabilities of labels are transformers', and other heads are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
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
