"""Between plain values and protobuf, for labels: pure functions that both clients share."""

from collections.abc import Iterable, Iterator
from operator import add
from typing import Literal, TypedDict

from dragoman.results.classification import Classification, Label, LabelledSpan
from dragoman.v1 import encoding_pb2
from dragoman.wire.encoding import TRUNCATIONS, Truncation
from dragoman.wire.given import check_known, checked, int32
from dragoman.wire.messages import Texts, batches, check_count, timings
from dragoman.wire.options import number

Grouping = Literal["tokens", "entities"]
GROUPINGS = {
    "tokens": encoding_pb2.GROUPING_TOKENS,
    "entities": encoding_pb2.GROUPING_ENTITIES,
}


class ClassifyOptions(TypedDict, total=False):
    """How texts are labelled. What is left out, or None, takes the model's default."""

    most_labels: int | None
    """So many labels, the most probable ones, of each text or span. Left out: all of a text, and one of a span."""
    grouping: Grouping | None
    """What spans are, of a model that labels tokens: tokens, or neighbours with labels of one kind, such as "B-PER" and
    "I-PER". Left out: "tokens"."""
    truncation: Truncation | None
    """What becomes of a text that has more tokens than the model takes: it is refused ("error"), or its end is cut off
    ("end"), and `Classification.truncated` says so. Left out: "error"."""
    second: str | Texts | None
    """As many texts: each is labelled together with the one in its place, by a model with `labels_pairs`."""
    model: str
    """Name of the model. Left out: the server's default model."""


def classify_requests(
    texts: Iterable[str], options: ClassifyOptions, most: int
) -> Iterator[encoding_pb2.ClassifyRequest]:
    """The requests that together label the texts. Raises TypeError or ValueError for an impossible option.

    most: see `dragoman.wire.messages.batches`
    """
    check_known(options, ClassifyOptions)
    truncation = number("truncation", options.get("truncation") or "error", TRUNCATIONS)
    grouping = number("grouping", options.get("grouping") or "tokens", GROUPINGS)
    given, second = list(texts), options.get("second")
    seconds = [] if second is None else list(checked([second] if isinstance(second, str) else second, "second"))
    if second is not None and len(seconds) != len(given):
        raise ValueError(f"there are {len(given)} texts and {len(seconds)} second ones; give as many")
    done = 0
    for batch in batches(map(add, given, seconds) if seconds else given, most):
        part = slice(done, done := done + len(batch))
        yield encoding_pb2.ClassifyRequest(
            contents=given[part],
            second_contents=seconds[part],
            model=options.get("model", ""),
            most_labels=int32("most_labels", options.get("most_labels")),
            truncation=truncation,
            grouping=grouping,
        )


def classifications(
    request: encoding_pb2.ClassifyRequest, response: encoding_pb2.ClassifyResponse
) -> list[Classification]:
    """What was found of a request's contents, in order."""
    check_count(request.contents, response.classifications)
    return [
        Classification(
            labels=_labels(message.labels),
            spans=tuple(LabelledSpan(span.begin, span.end, _labels(span.labels)) for span in message.spans),
            source_tokens=message.source_tokens,
            timings=timings(message.timings),
            truncated=message.truncated,
        )
        for message in response.classifications
    ]


def _labels(messages: Iterable[encoding_pb2.Label]) -> tuple[Label, ...]:
    return tuple(Label(message.name, message.probability) for message in messages)
