"""The choices that a caller may leave open, and what becomes of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from secrets import randbits

from engine.targets import TargetRules, rules_of_request
from models import decoding
from models.decoding import Decoding, Options
from models.languages import choose
from models.tokenizers.tokenizer import Tokenizer
from server.catalog.served_model import ServedModel
from server.errors import (
    AttentionTooLarge,
    LanguageNotSupported,
    OptionNotOffered,
    OptionOutOfRange,
    OptionsConflict,
    PromptNotSupported,
)
from server.translation.constraints import check_constraints
from server.translation.minimum_risk import check_installed
from server.translation.sources import SourceText
from server.translation.wording import in_tokens, without_unknown

SEED_BITS = 53
"""Of a seed that is drawn: any number of JSON has room for it."""

WEIGHT_BYTES = 2
"""Of attention: float16."""

SECOND_BEAMS, SECOND_NGRAMS = 4, 3
"""`num_beams` and `no_repeat_ngram_size` of a second try."""


@dataclass(frozen=True, slots=True)
class Route:
    """From which language into which. Empty: the only one there is."""

    source_language: str = ""
    target_language: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for translations."""

    contents: Sequence[str]
    route: Route
    options: Options
    prompt: str | None


def check_route(route: Route, model: ServedModel, texts_name_target: bool = False) -> Route:
    """Both languages, as the model calls them. Raises LanguageNotSupported.

    texts_name_target: every text does, so that the route need not: the target may stay empty
    """
    return Route(source_of(route, model), target_of(route, model, texts_name_target))


def source_of(route: Route, model: ServedModel) -> str:
    """What the model calls the source language. Raises LanguageNotSupported."""
    return _language("source_language_code", route.source_language, model.source_languages)


def target_of(route: Route, model: ServedModel, texts_name_target: bool = False) -> str:
    """What the model calls the target language, or nothing: see `check_route`. Raises LanguageNotSupported."""
    if texts_name_target and not route.target_language:
        return ""
    return _language("target_language_code", route.target_language, model.target_languages)


def resolve(options: Options, model: ServedModel, tokenizer: Tokenizer, rules: TargetRules) -> Decoding:
    """Fills in what is left open. Raises OptionOutOfRange or OptionsConflict.

    options: of the types of `models.decoding`, but that phrases may be texts
    rules: what holds for every target of the model in its language
    """
    resolved = model.defaults if not options else _resolved(options, model, tokenizer)
    resolved = without_unknown(resolved, tokenizer)
    resolved = _with_room(resolved, "max_new_tokens" in options, model, rules)
    if (beta := resolved.prefix_bias_beta) and not resolved.target_prefix:
        raise OptionsConflict("prefix_bias_beta", beta, "target_prefix", "empty", "send one, or no beta")
    _check_forced(resolved)
    if resolved.return_alternatives:
        _check_alternatives(resolved)
    _check_groups(resolved)
    if resolved.mbr_samples:
        _check_samples(resolved)
    if resolved.must_include:
        check_constraints(resolved, rules)
    _check_offered(resolved, model)
    if not resolved.do_sample:
        return replace(resolved, seed=0) if resolved.seed else resolved
    if (beams := resolved.num_beams) > 1:
        raise OptionsConflict("do_sample", True, "num_beams", beams, "send num_beams 1, or do_sample false")
    return resolved if "seed" in options else replace(resolved, seed=randbits(SEED_BITS))


def _check_offered(decoding: Decoding, model: ServedModel) -> None:
    """Raises OptionNotOffered: where targets look, some graphs do not tell; and some sources have other tokens."""
    if decoding.with_alignment and not model.aligns:
        way = "or export again, with --samples of the source language whose names and numbers translations copy"
        raise OptionNotOffered("an alignment", way)
    if decoding.coverage_penalty and not model.covers:
        raise OptionNotOffered("a coverage of the source")
    if decoding.with_attention and not model.attends:
        raise OptionNotOffered("attention")
    if decoding.looks_at_source and not model.shares_vocabulary:
        raise OptionNotOffered("one vocabulary of source and target", "or send bad_words or sequence_bias instead")


def _check_forced(decoding: Decoding) -> None:
    """Raises OptionsConflict: what every target begins with cannot be what none has, as in `generate`."""
    for token in decoding.forced_bos_token:
        if token in decoding.suppress_tokens:
            way = "leave one of them out"
            raise OptionsConflict("forced_bos_token", token, "suppress_tokens", token, way)


def _check_alternatives(decoding: Decoding) -> None:
    """Raises OptionsConflict: they are found greedily, after a prefix that all of them have."""
    others: dict[str, float] = {"num_beams": decoding.num_beams, "do_sample": decoding.do_sample}
    defaults: dict[str, float] = {"num_beams": 1, "do_sample": False}
    if decoding.target_prefix:
        others["prefix_bias_beta"], defaults["prefix_bias_beta"] = decoding.prefix_bias_beta, 0.0
    for name, value in others.items():
        if value != defaults[name]:
            way = f"send {name} {str(defaults[name]).lower()}, or return_alternatives false"
            raise OptionsConflict("return_alternatives", True, name, value, way)


def _check_groups(decoding: Decoding) -> None:
    """Raises OptionsConflict: groups of beams are of equal size, and a penalty keeps them apart."""
    beams, groups, penalty = decoding.num_beams, decoding.num_beam_groups, decoding.diversity_penalty
    if beams % groups:
        way = f"send {groups * (beams // groups)} beams, or a divisor of {beams} as the number of groups"
        raise OptionsConflict("num_beam_groups", groups, "num_beams", beams, way)
    if groups > 1 and not penalty:
        way = "send a penalty above 0, or one group: without it all groups are equal"
        raise OptionsConflict("num_beam_groups", groups, "diversity_penalty", penalty, way)
    if penalty and groups == 1:
        way = "send two groups of beams or more, or no penalty"
        raise OptionsConflict("diversity_penalty", penalty, "num_beam_groups", groups, way)


def _check_samples(decoding: Decoding) -> None:
    """Raises OptionsConflict or ExtraMissing: what is chosen among samples is one of them."""
    samples, wanted = decoding.mbr_samples, decoding.num_return_sequences
    if not decoding.do_sample:
        raise OptionsConflict("mbr_samples", samples, "do_sample", False, "send do_sample true, or no mbr_samples")
    if wanted > samples:
        way = f"send {wanted} mbr_samples or more, or {samples} as num_return_sequences"
        raise OptionsConflict("num_return_sequences", wanted, "mbr_samples", samples, way)
    check_installed()


def _with_room(decoding: Decoding, chosen: bool, model: ServedModel, rules: TargetRules) -> Decoding:
    """The same, with no more new tokens than the prefix leaves room for. chosen: the caller says how many."""
    forced = len(rules_of_request(rules, decoding).prefix_ids) - len(rules.prefix_ids)
    room = model.max_new_tokens - forced
    if room < 1:
        what = ": the number of tokens"
        raise OptionOutOfRange("decoding.target_prefix", forced, 0, model.max_new_tokens - 1, what=what)
    if decoding.max_new_tokens <= room:
        return decoding
    if chosen:
        note = f", which is what a prefix of {forced} tokens leaves of {model.max_new_tokens}"
        raise OptionOutOfRange("decoding.max_new_tokens", decoding.max_new_tokens, 1, room, note)
    return replace(decoding, max_new_tokens=room)


def check_attention(decoding: Decoding, sources: Iterable[SourceText], model: ServedModel) -> None:
    """Raises AttentionTooLarge where a message may have no room for what is told of the sources."""
    if not decoding.with_attention:
        return
    size = sum(most_bytes(decoding, len(source.token_ids), model) for source in sources)
    if size > model.max_message_bytes:
        raise AttentionTooLarge(size, model.max_message_bytes)


def most_bytes(decoding: Decoding, source_tokens: int, model: ServedModel) -> int:
    """Of one content whose hypotheses all have as many tokens as they may."""
    most = decoding.max_new_tokens
    if decoding.max_new_tokens_ratio:
        most = min(most, max(1, ceil(decoding.max_new_tokens_ratio * source_tokens)))
    of_source = prod((model.encoder_layers, model.encoder_heads, source_tokens, source_tokens))
    of_target = prod((model.decoder_layers, model.decoder_heads, most, source_tokens))
    hypotheses = max(decoding.num_return_sequences, decoding.samples)
    return WEIGHT_BYTES * (of_source + hypotheses * of_target)


def second_try(decoding: Decoding, model: ServedModel) -> Decoding:
    """How a translation that looks wrong is made again."""
    beams = min(SECOND_BEAMS, model.max_beams)
    return replace(
        decoding,
        num_beams=beams,
        num_return_sequences=min(decoding.num_return_sequences, beams),
        no_repeat_ngram_size=SECOND_NGRAMS,
        do_sample=False,
        return_alternatives=False,
        num_beam_groups=1,
        diversity_penalty=0.0,
        mbr_samples=0,
        seed=0,
    )


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


def _resolved(options: Options, model: ServedModel, tokenizer: Tokenizer) -> Decoding:
    try:
        return decoding.resolve(in_tokens(options, tokenizer), model.defaults, model.limits)
    except decoding.OutOfRange as error:
        field = f"decoding.{error.name}"
        raise OptionOutOfRange(field, error.value, error.least, error.most, error.note, error.what) from error


def _language(field: str, tag: str, supported: Sequence[str]) -> str:
    found = choose(tag, supported)
    if found is None:
        raise LanguageNotSupported(field, tag, supported)
    return found
