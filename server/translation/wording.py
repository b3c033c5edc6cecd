"""The words that options name: from texts to the model's tokens."""

from dataclasses import replace

from models.decoding import MANY_PHRASES, WORDS, Decoding, Options, Phrase, check_count
from models.tokenizers.tokenizer import Tokenizer
from server.errors import PhraseNotWritable


def in_tokens(options: Options, tokenizer: Tokenizer) -> Options:
    """The same options, each phrase as the tokens that the model would write it with, but for `must_exclude`.

    Raises OutOfRange for too many of them, and PhraseNotWritable.
    """

    def tokens(phrase: Phrase) -> tuple[int, ...]:
        return tuple(tokenizer.encode_target(phrase)) if isinstance(phrase, str) else phrase

    def included(place: int, phrase: Phrase) -> tuple[int, ...]:
        found = tokens(phrase)
        if isinstance(phrase, str) and phrase.strip() not in (shown := tokenizer.decode(found)):
            raise PhraseNotWritable(f"decoding.must_include[{place}]", phrase, shown)
        return found

    written = dict(options)
    for name in WORDS.keys() & options.keys():
        if name in MANY_PHRASES:
            check_count(name, options[name], WORDS[name].phrases)
        match name, options[name]:
            case "sequence_bias", biases:
                written[name] = tuple((tokens(phrase), bias) for phrase, bias in biases)
            case "bad_words", phrases:
                written[name] = tuple(map(tokens, phrases))
            case "must_include", phrases:
                written[name] = tuple(included(place, phrase) for place, phrase in enumerate(phrases))
            case "must_exclude", _:
                pass  # a text is excluded however it is written
            case _, phrase:
                written[name] = tokens(phrase)
    return written


def without_unknown(decoding: Decoding, tokenizer: Tokenizer) -> Decoding:
    """The same, with what `disable_unknown` means for this model."""
    if not decoding.disable_unknown or tokenizer.unknown_id is None:
        return decoding
    return replace(decoding, suppress_tokens=(*decoding.suppress_tokens, tokenizer.unknown_id))
