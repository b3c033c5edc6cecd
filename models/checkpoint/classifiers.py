"""Heads of encoders that label texts or tokens: `...ForSequenceClassification`, `...ForTokenClassification`."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.dense import take_dense
from models.checkpoint.files.reading import JsonKeys, TensorFile, invalid
from models.encoding.classifier import Classifier, ClassifierSpec
from models.encoding.dense import DenseActivation

Layers = tuple[tuple[str, DenseActivation], ...]
"""Their names in the weights, from the first token's hidden state to the logits."""
BERT: Layers = (("pooler.dense", "tanh"), ("classifier", "identity"))
ROBERTA: Layers = (("classifier.dense", "tanh"), ("classifier.out_proj", "identity"))
DISTILBERT: Layers = (("pre_classifier", "relu"), ("classifier", "identity"))
OF_TEXT = {"bert": BERT, "distilbert": DISTILBERT}
"""By `model_type`; all others have ROBERTA's."""
OF_TOKENS: Layers = (("classifier", "identity"),)


class HeadConfig(JsonKeys):
    """What config.json says. Defaults are Hugging Face's."""

    model_type: str
    architectures: list[str] | None = None
    id2label: dict[str, str] | None = None
    num_labels: int | None = Field(default=None, ge=1)
    """How many there are where `id2label` does not name them."""
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression", None] = None

    @property
    def labels(self) -> dict[str, str]:
        """Their names, by their numbers."""
        return self.id2label or {str(number): f"LABEL_{number}" for number in range(self.num_labels or 2)}

    @property
    def of(self) -> Literal["text", "tokens", None]:
        """What the head labels. None: there is no such head."""
        [name] = self.architectures if self.architectures and len(self.architectures) == 1 else [""]
        if name.endswith("ForSequenceClassification"):
            return "text"
        return "tokens" if name.endswith("ForTokenClassification") else None


def take_classifier(config: HeadConfig, tensors: TensorFile, width: int, file: Path) -> Classifier | None:
    """Takes the head out of an encoder's weights, if there is one. Raises CheckpointError.

    width: of the hidden states. file: config.json
    """
    of = config.of
    if of is None:
        return None
    if config.problem_type == "regression":
        raise CheckpointError(f"{file}: problem_type is 'regression', which gives a number and no labels")
    names = [str(number) for number in range(len(config.labels))]
    if missing := [name for name in names if name not in config.labels]:
        raise CheckpointError(f"{file}: id2label has {len(names)} labels and no {missing[0]}")
    layers = OF_TOKENS if of == "tokens" else OF_TEXT.get(config.model_type, ROBERTA)
    sizes = [(width, width)] * (len(layers) - 1) + [(width, len(names))]
    taken = [
        take_dense(tensors, name, size, activation, f"classifier.{index}.npy")
        for index, ((name, activation), size) in enumerate(zip(layers, sizes, strict=True))
    ]
    several = config.problem_type == "multi_label_classification" or len(names) == 1  # as transformers' pipeline
    try:
        spec = ClassifierSpec(
            of=of,
            dense=tuple(spec for spec, _ in taken),
            labels=tuple(config.labels[name] for name in names),
            independent=several and of == "text",
        )
    except ValidationError as error:
        raise invalid(error, file) from error
    return Classifier(spec, tuple(dense for _, dense in taken))
