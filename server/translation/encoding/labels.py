"""Labels of texts and of their tokens: what a caller may choose of them, and what it gets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.request import Timings
from models.encoding import Vectors
from models.encoding.classifier import Classifier, Label, LabelledSpan, entities
from models.tokenizers.tokenizer import NOWHERE, Span
from server.catalog.served_model import ServedModel
from server.errors import DoesNotClassify, LabelsTooLarge, OptionOutOfRange, OptionsConflict
from server.translation.sources import SourceText

AROUND_LABEL, AROUND_SPAN = 12, 16
"""Bytes of a message beside the names of labels, at most: of each label, and of each span."""


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """What a caller chooses."""

    most: int | None = None
    """Labels of each text or span. None: all of a text, one of a span."""
    entities: bool = False
    """Spans are entities, not tokens."""
    truncate: bool = False
    """Cut the end off what is too long."""


@dataclass(frozen=True, slots=True)
class Classification:
    """What was found of one content."""

    labels: tuple[Label, ...]
    """Of the text, the most probable first. Empty: the model labels tokens."""
    spans: tuple[LabelledSpan, ...]
    source_tokens: int
    timings: Timings
    truncated: bool


@dataclass(frozen=True, slots=True)
class Labelling:
    """How texts are labelled."""

    classifier: Classifier
    most: int
    entities: bool

    @property
    def of_tokens(self) -> bool:
        return self.classifier.spec.of == "tokens"

    def labels(self, vectors: Vectors) -> tuple[Label, ...]:
        """Of a text, by its logits [labels]."""
        return self.classifier.best(self.classifier.probabilities(vectors), self.most)

    def spans(self, vectors: Vectors, places: Sequence[Span]) -> tuple[LabelledSpan, ...]:
        """Of a text, by the logits of its tokens [tokens, labels]. places: where each of them stands."""
        pairs = zip(places, self.classifier.probabilities(vectors), strict=True)
        found = (
            LabelledSpan(*place, self.classifier.best(probabilities, self.most))
            for place, probabilities in pairs
            if place != NOWHERE
        )
        return tuple(entities(found)) if self.entities else tuple(found)

    def check_size(self, sources: Iterable[SourceText], most_bytes: int) -> None:
        """Raises LabelsTooLarge where perhaps a message has no room for the labels of the sources."""
        longest = max(len(name.encode()) for name in self.classifier.spec.labels)
        each = AROUND_SPAN + self.most * (longest + AROUND_LABEL)
        size = each * sum(len(source.token_ids) if self.of_tokens else 1 for source in sources)
        if size > most_bytes:
            raise LabelsTooLarge(size, most_bytes)


def check_pairs(contents: int, seconds: int, model: ServedModel) -> None:
    """Raises OptionsConflict where there is no pair for every content, or the model labels none."""
    if not model.labels_pairs:
        way = "leave them out, or ask a model with Model.labels_pairs"
        raise OptionsConflict("second_contents", seconds, "the model", "one that labels single texts", way, within="")
    if contents != seconds:
        raise OptionsConflict("second_contents", seconds, "contents", contents, "send as many", within="")


def resolve_labelling(chosen: LabelOptions, model: ServedModel) -> Labelling:
    """Fills in what is left open. Raises DoesNotClassify, OptionOutOfRange or OptionsConflict."""
    classifier = model.classifier
    if classifier is None:
        raise DoesNotClassify(model.name)
    of, count = classifier.spec.of, len(classifier.spec.labels)
    if chosen.entities and of == "text":
        way = "leave it out, or ask a model that labels tokens"
        raise OptionsConflict("grouping", "entities", "the model", "one that labels texts", way, within="")
    if chosen.most is not None and not 1 <= chosen.most <= count:
        raise OptionOutOfRange("most_labels", chosen.most, 1, count)
    if chosen.entities and chosen.most not in (None, 1):
        way = "an entity has one label; leave most_labels out, or ask for tokens"
        raise OptionsConflict("grouping", "entities", "most_labels", chosen.most, way, within="")
    most = (1 if of == "tokens" else count) if chosen.most is None else chosen.most
    return Labelling(classifier, most, chosen.entities)
