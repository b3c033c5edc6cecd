"""Phrases that every hypothesis must have: what cannot be had is refused."""

from collections.abc import Iterator, Sequence

from engine.targets import TargetRules, rules_of_request
from models.decoding import Decoding, Phrase
from server.errors import OptionOutOfRange, OptionsConflict


def check_constraints(decoding: Decoding, rules: TargetRules) -> None:
    """Raises OptionsConflict, OptionOutOfRange.

    rules: what holds for every target of the model in its language
    """
    phrases = f"{len(decoding.must_include)} phrases"
    for name, value, way in (
        ("do_sample", decoding.do_sample, "send do_sample false"),
        ("return_alternatives", decoding.return_alternatives, "send return_alternatives false"),
        ("num_beam_groups", decoding.num_beam_groups > 1 and decoding.num_beam_groups, "send num_beam_groups 1"),
        ("num_beams", decoding.num_beams == 1 and 1, "send num_beams 2 or more"),
        ("stop_strings", list(decoding.stop_strings), "send no stop_strings"),
    ):
        if value:
            raise OptionsConflict("must_include", phrases, name, value, f"{way}, or no must_include")
    rules = rules_of_request(rules, decoding)
    forced = (rules.forced_begin_id is not None) + (rules.forced_end_id is not None)
    if decoding.included_tokens > (room := decoding.max_new_tokens - forced):
        note = f", which is what is left of max_new_tokens {decoding.max_new_tokens}"
        what = ": the number of tokens of all phrases"
        raise OptionOutOfRange("decoding.must_include", decoding.included_tokens, 1, room, note, what)
    for place, phrase in enumerate(decoding.must_include):
        for name, excluded in _excluded(phrase, decoding, rules):
            way = "no target has both; leave one of them out"
            raise OptionsConflict(f"must_include[{place}]", list(phrase), name, excluded, way)


def _excluded(phrase: tuple[int, ...], decoding: Decoding, rules: TargetRules) -> Iterator[tuple[str, object]]:
    """What keeps a phrase out of targets: the name of the option and its value."""
    tokens = [("suppress_tokens", one) for one in decoding.suppress_tokens]
    tokens += [("an end token", one) for one in rules.end_ids]
    tokens += [("a token that the model suppresses", one) for one in rules.suppressed_ids]
    yield from ((name, token) for name, token in tokens if token in phrase)
    for name, phrases in (("bad_words", decoding.bad_words), ("must_exclude", decoding.must_exclude)):
        for place, excluded in enumerate(phrases):
            if _has(phrase, excluded, rules):
                yield f"{name}[{place}]", excluded if isinstance(excluded, str) else list(excluded)


def _has(phrase: Sequence[int], excluded: Phrase, rules: TargetRules) -> bool:
    if isinstance(excluded, str):
        assert rules.pieces is not None
        return excluded.encode() in rules.pieces.text(phrase)
    size = len(excluded)
    return any(tuple(phrase[start : start + size]) == excluded for start in range(len(phrase) - size + 1))
