"""The choices that a caller may leave open, and what becomes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import randbits

from models import decoding
from models.decoding import Decoding, Options
from models.languages import choose
from server.catalog.served_model import ServedModel
from server.errors import LanguageNotSupported, OptionOutOfRange, OptionsConflict, PromptNotSupported

SEED_BITS = 53
"""Of a seed that is drawn: any number of JSON has room for it."""


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
    """Fills in what is left open. Raises OptionOutOfRange or OptionsConflict."""
    resolved = model.defaults if not options else _resolved(options, model)  # the defaults were checked
    if not resolved.do_sample:
        return replace(resolved, seed=0) if resolved.seed else resolved
    if resolved.num_beams > 1:
        raise OptionsConflict(resolved.num_beams)
    return resolved if "seed" in options else replace(resolved, seed=randbits(SEED_BITS))


def is_drawn(decoding: Decoding, options: Options) -> bool:
    """Whether nobody asks the same again, since the seed was not chosen by the caller."""
    return decoding.do_sample and "seed" not in options


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


def _resolved(options: Options, model: ServedModel) -> Decoding:
    try:
        return decoding.resolve(options, model.defaults, model.limits)
    except decoding.OutOfRange as error:
        field = f"decoding.{error.name}"
        raise OptionOutOfRange(field, error.value, error.least, error.most, error.note) from error


def _language(field: str, tag: str, supported: Sequence[str]) -> str:
    found = choose(tag, supported)
    if found is None:
        raise LanguageNotSupported(field, tag, supported)
    return found
