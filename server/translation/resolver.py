"""What the options of calls stand for in one model."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from engine.targets import TargetRules
from models.decoding import LOOK_AT_TEXT, NAME_WORDS, Decoding, Options
from models.tokenizers.target_texts import Pieces
from models.tokenizers.tokenizer import Tokenizer
from server.catalog.served_model import ServedModel
from server.translation.options import resolve

MOST_KEPT = 256
"""Sets of options whose meaning is kept."""


class OptionResolver:
    """Of one model. Its methods belong to one event loop."""

    def __init__(
        self, model: ServedModel, tokenizer: Tokenizer, rules: TargetRules, language_rules: Mapping[str, TargetRules]
    ) -> None:
        """`rules`: of every target; `language_rules`: in their place, of those in a target language."""
        self._model, self._tokenizer, self._pieces = model, tokenizer, Pieces(tokenizer.pieces)
        self._rules = replace(rules, pieces=self._pieces)
        self._language_rules = {tag: replace(one, pieces=self._pieces) for tag, one in language_rules.items()}
        self._kept = dict[tuple[frozenset[tuple[str, object]], str], Decoding]()
        """By options and target language: most callers send the same with every call."""

    def rules_of(self, target_language: str) -> TargetRules:
        """What holds for targets in a language."""
        return self._language_rules.get(target_language, self._rules)

    async def resolve(self, options: Options, target_language: str) -> Decoding:
        """How targets in a language are decoded. Raises OptionOutOfRange or OptionsConflict."""
        if not LOOK_AT_TEXT.isdisjoint(options):
            await asyncio.to_thread(self._pieces.load)
        if not NAME_WORDS.isdisjoint(options):
            return self._resolved(options, target_language)
        key = frozenset(options.items()), target_language
        if (kept := self._kept.get(key)) is not None:
            return kept
        decoding = self._resolved(options, target_language)
        if not decoding.do_sample:  # whose seed may be another one every time
            if len(self._kept) == MOST_KEPT:
                self._kept.clear()
            self._kept[key] = decoding
        return decoding

    def _resolved(self, options: Options, target_language: str) -> Decoding:
        return resolve(options, self._model, self._tokenizer, self.rules_of(target_language))
