"""The words that options name: from texts to the model's tokens."""

from dataclasses import replace

from models.decoding import WORDS, Decoding, Options
from models.tokenizers.tokenizer import Tokenizer

Phrase = str | tuple[int, ...]
"""Words of a target: as a text, or as token ids."""


def in_tokens(options: Options, tokenizer: Tokenizer) -> Options:
    """The same options, each phrase as the tokens that the model would write it with."""

    def tokens(phrase: Phrase) -> tuple[int, ...]:
        return tuple(tokenizer.encode_target(phrase)) if isinstance(phrase, str) else phrase

    written = dict(options)
    for name in WORDS.keys() & options.keys():
        match name, options[name]:
            case "sequence_bias", biases:
                written[name] = tuple((tokens(phrase), bias) for phrase, bias in biases)
            case "bad_words", phrases:
                written[name] = tuple(map(tokens, phrases))
            case _, phrase:
                written[name] = tokens(phrase)
    return written


def without_unknown(decoding: Decoding, tokenizer: Tokenizer) -> Decoding:
    """The same, with what `disable_unknown` means for this model."""
    if not decoding.disable_unknown or tokenizer.unknown_id is None:
        return decoding
    return replace(decoding, suppress_tokens=(*decoding.suppress_tokens, tokenizer.unknown_id))
