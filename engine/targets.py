"""Which tokens the target of a request begins and ends with, and which it cannot have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.decoding import Decoding
from models.package.declared.graphs import Vocabulary
from models.package.manifest import GenerationDefaults, TargetLanguage
from models.tokenizers.target_texts import Pieces, StopStrings


@dataclass(frozen=True, slots=True)
class TargetRules:
    """Of one request: its model's, its target language's, and its own."""

    prefix_ids: tuple[int, ...]
    """What the decoder is fed before it chooses the first token: the start token, or more. At least one."""
    end_ids: frozenset[int]
    """Each ends a hypothesis."""
    forced_end_id: int | None = None
    """The token, if the model wants one, that every hypothesis of `max_new_tokens` ends with, at log-probability 0."""
    suppressed_ids: frozenset[int] = frozenset()
    """Tokens that are never produced (Hugging Face `bad_words_ids` of one token, padding for one). The others keep the
    log-probability that the model gave them. An end token cannot be suppressed."""
    forced_begin_id: int | None = None
    """The token, if the model wants one, that is chosen first, at log-probability 0."""
    min_tokens: int = 0
    """No end token is chosen before so many others."""
    pieces: Pieces | None = field(default=None, compare=False)
    """What tokens add to a text, for requests that look at it."""
    stops: StopStrings | None = field(default=None, compare=False)
    """Texts that end a hypothesis too."""
    continues: bool = False
    """The first of `prefix_ids` stands for the source's last token: see `after`."""

    @property
    def fed_ids(self) -> tuple[int, ...]:
        """What a target that is given begins after: the prefix, and the token that every target begins with."""
        return self.prefix_ids if self.forced_begin_id is None else (*self.prefix_ids, self.forced_begin_id)

    def after(self, source_ids: Sequence[int]) -> "TargetRules":
        """Those for a target of this source."""
        if not self.continues:
            return self
        return replace(self, prefix_ids=(source_ids[-1], *self.prefix_ids[1:]), continues=False)

    def stopped_by(self, chosen: Sequence[int]) -> bool:
        """Whether the last of the chosen tokens completes one of the texts that end a hypothesis."""
        return self.stops is not None and self.stops.ended_by((*self.prefix_ids, *chosen))

    def barred_ids(self, chosen: int) -> frozenset[int]:
        """What cannot be the next token, after so many."""
        suppressed = self.suppressed_ids - self.end_ids
        return suppressed if chosen >= self.min_tokens else suppressed | self.end_ids


def target_rules(vocabulary: Vocabulary, generation: GenerationDefaults) -> TargetRules:
    """Those that hold for every target of a model."""
    end_ids = frozenset({vocabulary.end_id})
    return TargetRules(
        (vocabulary.start_id,),
        end_ids,
        generation.forced_end_id,
        frozenset(generation.suppressed_ids) - end_ids,
        generation.forced_begin_id,
        continues=vocabulary.continues,
    )


def rules_of_request(rules: TargetRules, decoding: Decoding) -> TargetRules:
    """What holds for a target with these options. rules: what holds for every target of its model and language."""
    if decoding.forced_bos_token:
        rules = replace(rules, forced_begin_id=decoding.forced_bos_token[0])
    if decoding.forced_prefix or decoding.return_alternatives:
        rules = replace(rules, prefix_ids=(*rules.fed_ids, *decoding.forced_prefix), forced_begin_id=None)
    if decoding.stop_strings:
        assert rules.pieces is not None, "whoever asks for stop strings says what tokens add to a text"
        rules = replace(rules, stops=StopStrings(decoding.stop_strings, rules.pieces))
    return rules if rules.min_tokens == decoding.min_new_tokens else replace(rules, min_tokens=decoding.min_new_tokens)


def language_rules(rules: TargetRules, languages: Mapping[str, TargetLanguage]) -> dict[str, TargetRules]:
    """Those that hold for the targets in each language of a multilingual model.

    rules: what holds for every target
    """
    return {
        tag: replace(
            rules,
            prefix_ids=rules.prefix_ids if language.start_id is None else (language.start_id,),
            forced_begin_id=rules.forced_begin_id if language.begin_id is None else language.begin_id,
        )
        for tag, language in languages.items()
    }
