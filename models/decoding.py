"""The options of decoding, declared once: whoever reads, checks, stores or shows them loops over this declaration.

A caller's choice comes over the wire under the same name (`dragoman.v1.DecodingOptions`), a model's own stands in its
manifest and, before export, in its generation_config.json. docs/decisions/0012-options-are-declared-once.md says how
to add one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from math import ceil, isfinite
from typing import Annotated, Any, Literal, get_type_hints

from annotated_types import Ge, GroupedMetadata, Le
from pydantic import AllowInfNan

EarlyStopping = bool | Literal["never"]

TokenIds = tuple[int, ...]
"""Some words of a target."""
Phrase = TokenIds | str
"""The same, or a text however it is written."""
Bias = tuple[TokenIds, float]
"""Some words, and what is added to their score."""

Options = dict[str, Any]
"""The options that somebody has chosen: name -> value of the declared type. The others are left to the defaults."""


MOST_PHRASES, PHRASE_TOKENS, MOST_TOKENS = 1000, 64, 10_000
"""Of an option that names phrases, or tokens."""
MOST_CONSTRAINTS, MOST_STRINGS, CHARACTERS = 64, 64, 256
"""Phrases that targets must have; strings that end them; and characters of a text."""
MOST_BIAS = 10_000.0
"""That a score may be moved by, up or down."""


@dataclass(frozen=True, slots=True)
class Range(GroupedMetadata):
    """The values that a number may have. Pydantic checks what of it are numbers, `check` all of it."""

    least: float
    most: float | str
    """A number, or the name of what limits it: a limit of the server, or another option."""
    apart: str = ""
    """What limits it where hypotheses are found apart, if that is something else."""

    def __iter__(self) -> Iterator[object]:
        yield Ge(self.least)
        if not isinstance(self.most, str):
            yield Le(self.most)
        if isinstance(self.least, float):
            yield AllowInfNan(False)


@dataclass(frozen=True, slots=True)
class Words:
    """How many phrases there may be, and how many tokens each may have. Token ids have a limit of the server."""

    phrases: int
    tokens: int
    least: int = 1
    """Tokens of each."""


@dataclass(frozen=True, slots=True)
class Texts:
    """How many texts there may be, and how many characters each may have."""

    most: int
    characters: int


@dataclass(frozen=True, slots=True)
class Decoding:
    """How target tokens are chosen. Names and meanings of Hugging Face `generate`.

    The defaults hold where neither the request nor the model says anything.
    """

    num_beams: Annotated[int, Range(1, "max_beams")] = 1
    """Hypotheses kept at every step. 1 is greedy search."""
    num_return_sequences: Annotated[int, Range(1, "num_beams", apart="max_beams")] = 1
    """Hypotheses returned, best first; or so many samples or alternatives."""
    max_new_tokens: Annotated[int, Range(1, "max_new_tokens")] = 2**31 - 1
    """Most target tokens, the end token included. The default is as many as the model takes."""
    length_penalty: Annotated[float, Range(-10.0, 10.0)] = 1.0
    """A beam hypothesis scores sum(log p) / length^length_penalty. Beyond the range, scores overflow or are equal."""
    early_stopping: EarlyStopping = False
    """When beam search ends."""
    patience: Annotated[float, Range(0.1, 10.0)] = 1.0
    """Beam search ends when so many times `num_beams` hypotheses are finished (Kasai et al. 2022)."""
    coverage_penalty: Annotated[float, Range(0.0, 10.0)] = 0.0
    """How much it costs a hypothesis to leave out a part of the source (Wu et al. 2016, section 7)."""
    max_new_tokens_ratio: Annotated[float, Range(0.0, 1000.0)] = 0.0
    """Most target tokens for each token of the source. 0: any number."""
    min_new_tokens: Annotated[int, Range(0, "max_new_tokens")] = 0
    """No hypothesis ends before so many tokens."""
    exponential_decay_length_penalty: Annotated[float, Range(0.01, 100.0)] = 1.0
    """Ending becomes likelier by this factor with every token, from `exponential_decay_start` on."""
    exponential_decay_start: Annotated[int, Range(0, 2**31 - 1)] = 0
    """Tokens before that begins. Hugging Face has both in one tuple."""
    stop_strings: Annotated[tuple[str, ...], Texts(MOST_STRINGS, CHARACTERS)] = ()
    """A hypothesis ends with the token that completes one of these in its text."""
    return_alternatives: bool = False
    """Hypotheses begin with different tokens, the likeliest there are, and go on greedily. Without beams only."""
    min_alternative_expansion_prob: Annotated[float, Range(0.0, 1.0)] = 0.0
    """An alternative begins with a token of at least this probability. The best one is always there."""
    num_beam_groups: Annotated[int, Range(1, "num_beams")] = 1
    """The beams are so many groups, of equal size, which are kept apart (Vijayakumar et al. 2016). 1: they are not."""
    diversity_penalty: Annotated[float, Range(0.0, 100.0)] = 0.0
    """What it costs a group to choose a token that a group before it has chosen at the same step."""
    repetition_penalty: Annotated[float, Range(0.01, 100.0)] = 1.0
    """How much less likely the tokens of the target become. Below 1: more likely."""
    no_repeat_ngram_size: Annotated[int, Range(0, 1000)] = 0
    """No sequence of so many tokens occurs twice in a target. 0: any may."""
    encoder_repetition_penalty: Annotated[float, Range(0.01, 100.0)] = 1.0
    """How much more likely the tokens of the source become. Below 1: less likely."""
    encoder_no_repeat_ngram_size: Annotated[int, Range(0, 1000)] = 0
    """No sequence of so many tokens of the source occurs in the target. 0: any may."""
    target_prefix: Annotated[TokenIds, Words(1, 2**31 - 1, 0)] = ()
    """What every target begins with."""
    prefix_bias_beta: Annotated[float, Range(0.0, 1.0)] = 0.0
    """How much of the probability the next token of the prefix has, while it is followed. 0: the prefix is forced."""
    forced_bos_token: Annotated[TokenIds, Words(1, 1, 0)] = ()
    """The token, if one is given, that every target is forced to begin with, instead of the model's."""
    bad_words: Annotated[tuple[TokenIds, ...], Words(MOST_PHRASES, PHRASE_TOKENS)] = ()
    """Phrases that no target has."""
    sequence_bias: Annotated[tuple[Bias, ...], Words(MOST_PHRASES, PHRASE_TOKENS)] = ()
    """What is added to the scores of phrases."""
    suppress_tokens: Annotated[TokenIds, Words(1, MOST_TOKENS, 0)] = ()
    """Tokens that no target has."""
    begin_suppress_tokens: Annotated[TokenIds, Words(1, MOST_TOKENS, 0)] = ()
    """Tokens that no target begins with."""
    disable_unknown: bool = False
    """No target has an unknown token."""
    must_include: Annotated[tuple[TokenIds, ...], Words(MOST_CONSTRAINTS, PHRASE_TOKENS)] = ()
    """Phrases that every hypothesis has, each as often as it is given. With beams only."""
    must_exclude: Annotated[tuple[Phrase, ...], Words(MOST_PHRASES, PHRASE_TOKENS)] = ()
    """Phrases that no hypothesis has: as tokens, or in its text."""
    do_sample: bool = False
    """Tokens are drawn, and not the best taken. Without beams only."""
    temperature: Annotated[float, Range(0.01, 100.0)] = 1.0
    """What scores are divided by before a token is drawn: above 1 the unlikely become likelier."""
    top_k: Annotated[int, Range(0, 2**31 - 1)] = 50
    """One of so many best tokens is drawn. 0: any."""
    top_p: Annotated[float, Range(0.0, 1.0)] = 1.0
    """One of the best tokens that have so much of the probability together is drawn."""
    min_p: Annotated[float, Range(0.0, 1.0)] = 0.0
    """A token is drawn that has at least so much of the best one's probability."""
    top_h: Annotated[float, Range(0.0, 1.0)] = 0.0
    """One of the best tokens that have so much of the entropy together is drawn (Baghaei Potraghloo 2025). 0: any."""
    typical_p: Annotated[float, Range(0.0, 1.0)] = 1.0
    """One of the tokens that tell as much as is to be expected is drawn, so much probability of them."""
    epsilon_cutoff: Annotated[float, Range(0.0, 1.0)] = 0.0
    """A token of at least this probability is drawn."""
    eta_cutoff: Annotated[float, Range(0.0, 1.0)] = 0.0
    """A token of at least this probability is drawn, or of less where many are likely."""
    seed: Annotated[int, Range(0, 2**53)] = 0
    """What is drawn depends on it, the source and the options alone."""
    mbr_samples: Annotated[int, Range(0, "max_samples")] = 0
    """So many samples are drawn, and those returned that are most like all of them: minimum Bayes risk. 0: none are."""
    with_tokens: bool = False
    """The tokens of each hypothesis come back, with their log-probabilities."""
    with_alignment: bool = False
    """Which source token each token of a hypothesis comes from comes back."""
    with_attention: bool = False
    """Where every head of every layer looks comes back."""
    retry_on_guard: bool = False
    """A translation that looks wrong is made again, by beam search without repetitions."""

    @property
    def words(self) -> int:
        """How many tokens its options name, or characters, and a little more for each phrase."""
        biased = (phrase for phrase, _ in self.sequence_bias)
        phrases = [*self.bad_words, *biased, *self.must_include, *self.must_exclude, *self.stop_strings]
        of_phrases = sum(map(len, phrases)) + 2 * len(phrases) if phrases else 0
        return of_phrases + len(self.target_prefix) + len(self.suppress_tokens) + len(self.begin_suppress_tokens)

    @property
    def included_tokens(self) -> int:
        """Of all phrases that every hypothesis has."""
        return sum(map(len, self.must_include))

    @property
    def named_tokens(self) -> TokenIds:
        """Those that it says a target has, or should rather have: a shortlist is to give them too."""
        preferred = self.target_prefix[: self.max_new_tokens] if self.prefix_bias_beta else ()
        biased = [phrase for phrase, bias in self.sequence_bias if bias > 0] if self.sequence_bias else ()
        return (*preferred, *chain.from_iterable((*self.must_include, *biased)))

    @property
    def forced_prefix(self) -> TokenIds:
        """What every target begins with, whatever the model thinks of it."""
        return () if self.prefix_bias_beta else self.target_prefix

    @property
    def written_prefix(self) -> TokenIds:
        """What the text of a hypothesis begins with, and its tokens do not.

        A forced first token is one of its tokens, unless a prefix follows it, or alternatives, which differ behind it.
        """
        return (*self.forced_bos_token, *self.forced_prefix) if self.forced_prefix or self.return_alternatives else ()

    @property
    def apart(self) -> bool:
        """Each hypothesis is found in a row of its own, as if it were alone: a sample, or an alternative."""
        return self.do_sample or self.return_alternatives

    @property
    def samples(self) -> int:
        """Hypotheses that are found apart. 1 too where none are."""
        return max(self.num_return_sequences, self.mbr_samples) if self.apart else 1

    @property
    def rows(self) -> int:
        """Hypotheses of a source that are extended at once, at most."""
        return max(self.num_beams, self.samples)

    @property
    def passes(self) -> int:
        """Hypotheses of a source that are looked at once more, when they are found, at most."""
        if self.coverage_penalty and self.num_beams > 1:  # all that beam search may finish in time
            return max(self.num_return_sequences, ceil(self.num_beams * self.patience)) + self.num_beams
        looked_at = self.coverage_penalty or self.with_alignment or self.with_attention
        return max(self.num_return_sequences, self.samples) if looked_at else 0

    @property
    def looks_at_source(self) -> bool:
        """Scores depend on which tokens the source has, beyond what the model makes of them."""
        return self.encoder_repetition_penalty != 1 or self.encoder_no_repeat_ngram_size > 0


OPTIONS = tuple(option.name for option in fields(Decoding))
"""The names of all options."""
_HINTS = get_type_hints(Decoding, include_extras=True)
_PARTS = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in _HINTS.items()}
RANGES: dict[str, Range] = {name: part for name, part in _PARTS.items() if isinstance(part, Range)}
"""Those that are numbers."""
WORDS: dict[str, Words] = {name: part for name, part in _PARTS.items() if isinstance(part, Words)}
"""Those that are words of a target."""
LOOK_AT_TEXT = frozenset({"stop_strings", "must_include", "must_exclude"})
"""Those that look at what tokens add to a text."""
MANY_PHRASES = frozenset(name for name, words in WORDS.items() if words.phrases > 1)
"""Those that are several phrases."""
TEXTS: dict[str, Texts] = {name: part for name, part in _PARTS.items() if isinstance(part, Texts)}
"""Those that are texts."""
NAME_WORDS = frozenset({*WORDS, *TEXTS})
"""Those that are words of a target, or texts: they may be long."""


class OutOfRange(ValueError):
    """An option with a value that it cannot have."""

    def __init__(self, name: str, value: float, least: float, most: float, note: str = "", what: str = "") -> None:
        """`what`: the part of the option that the value is of."""
        super().__init__(f"{name}{what} is {value}; it must be from {least} to {most}{note}")
        self.name, self.value, self.least, self.most, self.note, self.what = name, value, least, most, note, what


def resolve(chosen: Options, defaults: Decoding, limits: Mapping[str, float]) -> Decoding:
    """Fills in what is left open. Raises OutOfRange.

    limits: what the ranges name that is no option, and the number of token ids as `vocabulary_size`
    """
    decoding = replace(defaults, **chosen)
    check(decoding, limits)
    return decoding


def check(decoding: Decoding, limits: Mapping[str, float]) -> None:
    """Raises OutOfRange for the first option that is."""
    for name, range_ in RANGES.items():
        value, note = getattr(decoding, name), ""
        most = range_.apart if range_.apart and decoding.apart else range_.most
        if most in OPTIONS and most != name:
            most, note = getattr(decoding, most), f", which is {most}"
        elif isinstance(most, str):
            most = limits[most]
        if not range_.least <= value <= most:
            raise OutOfRange(name, value, range_.least, most, note if isfinite(value) else " and finite")
    for name, words in WORDS.items():
        if found := getattr(decoding, name):
            _check_words(name, found, words, limits["vocabulary_size"])
    for name, texts in TEXTS.items():
        check_count(name, getattr(decoding, name), texts.most, "strings")
        for place, text in enumerate(getattr(decoding, name)):
            _check_text(f"{name}[{place}]", text, texts.characters)


def check_count(name: str, found: Sequence[object], most: int, what: str = "phrases") -> None:
    """Raises OutOfRange where an option has too many of something."""
    if len(found) > most:
        raise OutOfRange(name, len(found), 0, most, what=f": the number of {what}")


def _check_words(name: str, found: tuple[Any, ...], words: Words, vocabulary_size: float) -> None:
    several = not isinstance(found[0], int)
    if several:
        check_count(name, found, words.phrases)
    phrases = [entry[0] if name == "sequence_bias" else entry for entry in found] if several else [found]
    if several and (total := sum(len(phrase) for phrase in phrases if not isinstance(phrase, str))) > MOST_TOKENS:
        raise OutOfRange(name, total, 0, MOST_TOKENS, what=": the number of tokens of all phrases")
    for place, entry in enumerate(found if several else [found]):
        phrase, bias = entry if name == "sequence_bias" else (entry, 0.0)
        part = f"{name}[{place}]" if several else name
        if isinstance(phrase, str):
            _check_text(part, phrase, CHARACTERS)
            continue
        if not words.least <= len(phrase) <= words.tokens:
            raise OutOfRange(part, len(phrase), words.least, words.tokens, what=": the number of tokens")
        for token in phrase:
            if not 0 <= token < vocabulary_size:
                raise OutOfRange(part, token, 0, vocabulary_size - 1, what=": a token id")
        if not abs(bias) <= MOST_BIAS:
            raise OutOfRange(part, bias, -MOST_BIAS, MOST_BIAS, what=": the bias")


def _check_text(part: str, text: str, characters: int) -> None:
    if not 1 <= len(text) <= characters:
        raise OutOfRange(part, len(text), 1, characters, what=": the number of characters")
