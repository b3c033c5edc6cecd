"""Contents that are more than a sentence each: what a request says of them, and their sentences in the reply."""

from collections.abc import Iterable, Iterator, Sequence

from dragoman.v1 import translation_pb2
from models.decoding import Options
from server.api.values import plain
from server.errors import BlankContent, EmptyContents, OptionOutOfRange, OptionsConflict, quoted
from server.text.protected import Term
from server.text.texts import Shape

MOST_TERMS = 1000
"""Of a glossary."""
FORMATS = {
    translation_pb2.TEXT_FORMAT_UNSPECIFIED: False,
    translation_pb2.TEXT_FORMAT_PLAIN: False,
    translation_pb2.TEXT_FORMAT_HTML: True,
}
"""Whether it is HTML."""
SEGMENTATIONS = {
    translation_pb2.SEGMENTATION_UNSPECIFIED: False,
    translation_pb2.SEGMENTATION_NONE: False,
    translation_pb2.SEGMENTATION_SENTENCES: True,
}
"""Whether it is in sentences."""
OF_ONE_SENTENCE = (
    "with_alignment",
    "with_attention",
    "with_tokens",
    "return_alternatives",
    "target_prefix",
    "must_include",
)
"""Options that mean the tokens of one target."""


def shape_of(request: translation_pb2.TranslateRequest) -> Shape | None:
    """What the contents are. None: single sentences. Raises OptionOutOfRange."""
    html = plain("format", request.format, FORMATS)
    segmented = plain("segmentation", request.segmentation, SEGMENTATIONS)
    terms = glossary_of(request)
    return Shape(html, html or segmented, terms) if html or segmented or terms else None


def glossary_of(
    request: translation_pb2.TranslateRequest | translation_pb2.TranslateDocumentRequest,
) -> tuple[Term, ...]:
    """Its terms. Raises OptionOutOfRange, BlankContent or OptionsConflict."""
    if len(request.glossary) > MOST_TERMS:
        raise OptionOutOfRange("glossary", len(request.glossary), 0, MOST_TERMS, what=" has terms, their number")
    return tuple(_terms(request.glossary)) if request.glossary else ()


def check_contents(contents: Sequence[str], options: Options) -> None:
    """Raises EmptyContents, BlankContent or OptionsConflict."""
    if not contents:
        raise EmptyContents
    for index, text in enumerate(contents):
        if not text or text.isspace():
            raise BlankContent(f"contents[{index}]", len(text))
    check_options(options)


def check_options(options: Options) -> None:
    """Raises OptionsConflict."""
    for name in OF_ONE_SENTENCE:
        if options.get(name):
            way = f"send the sentences as contents of their own, or no {name}"
            raise OptionsConflict(name, "set", "the content", "a text of sentences", way)


def _terms(glossary: Iterable[translation_pb2.GlossaryTerm]) -> Iterator[Term]:
    seen = dict[tuple[str, bool], tuple[int, Term]]()
    for index, term in enumerate(glossary):
        if not term.source or term.source.isspace():
            raise BlankContent(f"glossary[{index}].source", len(term.source))
        found = Term(term.source, term.target or None, term.case_sensitive)
        first, other = seen.setdefault(found.key, (index, found))
        if other.target != found.target:
            names = f"glossary[{index}].target", f"glossary[{first}].target"
            way = f"both are of {quoted(term.source)}; leave one out, or make both case_sensitive"
            raise OptionsConflict(names[0], quoted(term.target), names[1], quoted(other.target or ""), way, within="")
        yield found
