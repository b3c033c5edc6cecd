"""The choices that a caller may leave open, and what becomes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models import decoding
from models.decoding import Decoding, Options
from models.languages import choose
from server.catalog.served_model import ServedModel
from server.errors import LanguageNotSupported, OptionOutOfRange, PromptNotSupported


@dataclass(frozen=True, slots=True)
class Route:
    """From which language into which. Empty: the only one there is."""

    source_language: str = ""
    target_language: str = ""


def check_route(route: Route, model: ServedModel, texts_name_target: bool = False) -> Route:
    """Both languages, as the model calls them. Raises LanguageNotSupported.

    texts_name_target: every text does, so that the route need not: the target may stay empty
    """
    source = _language("source_language_code", route.source_language, model.source_languages)
    if texts_name_target and not route.target_language:
        return Route(source)
    return Route(source, _language("target_language_code", route.target_language, model.target_languages))


def resolve(options: Options, model: ServedModel) -> Decoding:
    """Fills in what is left open. Raises OptionOutOfRange."""
    if not options:
        return model.defaults  # which were checked when they were read
    try:
        return decoding.resolve(options, model.defaults, model.limits)
    except decoding.OutOfRange as error:
        field = f"decoding.{error.name}"
        raise OptionOutOfRange(field, error.value, error.least, error.most, error.note) from error


def prompt_text(chosen: str | None, own: str | None, prompts: Mapping[str, str]) -> str:
    """What is put before every text. Raises PromptNotSupported.

    chosen: the name of one of the prompts; empty is none of them, and None leaves it to the model, whose name is `own`
    """
    name = own if chosen is None else chosen
    if not name:
        return ""
    if name not in prompts:
        raise PromptNotSupported(name, tuple(prompts))
    return prompts[name]


def _language(field: str, tag: str, supported: Sequence[str]) -> str:
    found = choose(tag, supported)
    if found is None:
        raise LanguageNotSupported(field, tag, supported)
    return found
