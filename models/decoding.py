"""The options of decoding, declared once: whoever reads, checks, stores or shows them loops over this declaration.

A caller's choice comes over the wire under the same name (`dragoman.v1.DecodingOptions`), a model's own stands in its
manifest and, before export, in its generation_config.json. docs/decisions/0012-options-are-declared-once.md says how
to add one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Annotated, Any, Literal, get_type_hints

from annotated_types import Ge, GroupedMetadata, Le
from pydantic import AllowInfNan

EarlyStopping = bool | Literal["never"]

Options = dict[str, Any]
"""The options that somebody has chosen: name -> value of the declared type. The others are left to the defaults."""


@dataclass(frozen=True, slots=True)
class Range(GroupedMetadata):
    """The values that a number may have. Pydantic checks what of it are numbers, `check` all of it."""

    least: float
    most: float | str
    """A number, or the name of what limits it: a limit of the server, or another option."""

    def __iter__(self) -> Iterator[object]:
        yield Ge(self.least)
        if not isinstance(self.most, str):
            yield Le(self.most)
        if isinstance(self.least, float):
            yield AllowInfNan(False)


@dataclass(frozen=True, slots=True)
class Decoding:
    """How target tokens are chosen. Names and meanings of Hugging Face `generate`.

    The defaults hold where neither the request nor the model says anything.
    """

    num_beams: Annotated[int, Range(1, "max_beams")] = 1
    """Hypotheses kept at every step. 1 is greedy search."""
    num_return_sequences: Annotated[int, Range(1, "num_beams")] = 1
    """Hypotheses returned, best first."""
    max_new_tokens: Annotated[int, Range(1, "max_new_tokens")] = 2**31 - 1
    """Most target tokens, the end token included. The default is as many as the model takes."""
    length_penalty: Annotated[float, Range(-10.0, 10.0)] = 1.0
    """A beam hypothesis scores sum(log p) / length^length_penalty. Beyond the range, scores overflow or are equal."""
    early_stopping: EarlyStopping = False
    """When beam search ends."""
    repetition_penalty: Annotated[float, Range(0.01, 100.0)] = 1.0
    """How much less likely the tokens of the target become. Below 1: more likely."""
    no_repeat_ngram_size: Annotated[int, Range(0, 1000)] = 0
    """No sequence of so many tokens occurs twice in a target. 0: any may."""
    encoder_repetition_penalty: Annotated[float, Range(0.01, 100.0)] = 1.0
    """How much more likely the tokens of the source become. Below 1: less likely."""
    encoder_no_repeat_ngram_size: Annotated[int, Range(0, 1000)] = 0
    """No sequence of so many tokens of the source occurs in the target. 0: any may."""
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
    typical_p: Annotated[float, Range(0.0, 1.0)] = 1.0
    """One of the tokens that tell as much as is to be expected is drawn, so much probability of them."""
    epsilon_cutoff: Annotated[float, Range(0.0, 1.0)] = 0.0
    """A token of at least this probability is drawn."""
    eta_cutoff: Annotated[float, Range(0.0, 1.0)] = 0.0
    """A token of at least this probability is drawn, or of less where many are likely."""
    seed: Annotated[int, Range(0, 2**53)] = 0
    """What is drawn depends on it, the source and the options alone."""

    @property
    def looks_at_source(self) -> bool:
        """Scores depend on which tokens the source has, beyond what the model makes of them."""
        return self.encoder_repetition_penalty != 1 or self.encoder_no_repeat_ngram_size > 0


OPTIONS = tuple(option.name for option in fields(Decoding))
"""The names of all options."""
OF_GENERATE = tuple(name for name in OPTIONS if name != "seed")
"""Those that `generate` has too."""
RANGES: dict[str, Range] = {
    name: part
    for name, hint in get_type_hints(Decoding, include_extras=True).items()
    for part in getattr(hint, "__metadata__", ())
    if isinstance(part, Range)
}
"""Those that are numbers."""


class OutOfRange(ValueError):
    """An option with a value that it cannot have."""

    def __init__(self, name: str, value: float, least: float, most: float, note: str) -> None:
        super().__init__(f"{name} is {value}; it must be from {least} to {most}{note}")
        self.name, self.value, self.least, self.most, self.note = name, value, least, most, note


def resolve(chosen: Options, defaults: Decoding, limits: Mapping[str, float]) -> Decoding:
    """Fills in what is left open. Raises OutOfRange.

    limits: what the ranges name that is no option
    """
    decoding = replace(defaults, **chosen)
    check(decoding, limits)
    return decoding


def check(decoding: Decoding, limits: Mapping[str, float]) -> None:
    """Raises OutOfRange for the first option that is."""
    for name, range_ in RANGES.items():
        value, most, note = getattr(decoding, name), range_.most, ""
        if most in OPTIONS and most != name:
            most, note = getattr(decoding, most), f", which is {most}"
        elif isinstance(most, str):
            most = limits[most]
        if not range_.least <= value <= most:
            raise OutOfRange(name, value, range_.least, most, note if isfinite(value) else " and finite")
