"""Between plain values and protobuf, for texts that are more than a sentence."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from dragoman.v1 import translation_pb2
from dragoman.wire.given import check_whole
from dragoman.wire.options import number

TextFormat = Literal["plain", "html"]
Segmentation = Literal["none", "sentences"]


class TextOptions(TypedDict, total=False):
    """What the texts are. Not of streams."""

    format: TextFormat | None
    """What the texts are written in. Left out: "plain". In "html" tags stay around the words that come from theirs."""
    segmentation: Segmentation | None
    """Translate each text sentence by sentence, so that it may have any length. Left out: "none". HTML always is."""
    glossary: Mapping[str, str] | None
    """What words and phrases become: themselves, if that is empty. They stand for capital and small letters alike."""


FORMATS: dict[str, translation_pb2.TextFormat.ValueType] = {
    "plain": translation_pb2.TEXT_FORMAT_PLAIN,
    "html": translation_pb2.TEXT_FORMAT_HTML,
}
SEGMENTATIONS: dict[str, translation_pb2.Segmentation.ValueType] = {
    "none": translation_pb2.SEGMENTATION_NONE,
    "sentences": translation_pb2.SEGMENTATION_SENTENCES,
}


def text_fields(options: TextOptions) -> dict[str, Any]:
    """Those of a TranslateRequest that say it. Raises ValueError for a value that there is not, TypeError for none."""
    fields: dict[str, Any] = {}
    if (text_format := options.get("format")) is not None:
        fields["format"] = number("format", text_format, FORMATS)
    if (segmentation := options.get("segmentation")) is not None:
        fields["segmentation"] = number("segmentation", segmentation, SEGMENTATIONS)
    if glossary := options.get("glossary"):
        fields["glossary"] = _terms(glossary)
    return fields


def _terms(glossary: Mapping[str, str]) -> list[translation_pb2.GlossaryTerm]:
    if not isinstance(glossary, Mapping) or not all(map(_is_term, glossary.items())):
        raise TypeError(f"glossary is {glossary!r}; it must be a dict from str to str")
    for source, target in glossary.items():
        check_whole("a term of glossary", source)
        check_whole(f"glossary[{source!r}]", target)
    return [translation_pb2.GlossaryTerm(source=source, target=target) for source, target in glossary.items()]


def _is_term(term: tuple[object, object]) -> bool:
    return all(isinstance(text, str) for text in term)
