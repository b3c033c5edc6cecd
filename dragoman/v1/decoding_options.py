"""DecodingOptions as plain Python. Generated from dragoman/v1/decoding.proto by `make proto`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from dragoman.wire.options import EarlyStopping, Phrase


class DecodingKeywords(TypedDict, total=False):
    """How target tokens are chosen. The names and meanings are those of Hugging Face `generate`. What is left out, or
    None, takes the model's default.
    """

    num_beams: int | None
    """Hypotheses kept at every step. 1 is greedy search. From 1 to 16, and not more than the server's rows."""
    num_return_sequences: int | None
    """Hypotheses returned for each content, best first. From 1 to `num_beams`, or of `do_sample` so many samples, from
    1 to 16.
    """
    max_new_tokens: int | None
    """Most target tokens of a hypothesis, the end token included. From 1 to Model.max_new_tokens."""
    length_penalty: float | None
    """A beam hypothesis scores sum(log p) / length^length_penalty: above 0 favours long ones. From -10 to 10."""
    early_stopping: EarlyStopping | None
    """When beam search ends. Greedy search ignores it."""
    patience: float | None
    """Beam search ends when so many times `num_beams` hypotheses are finished. From 0.1 to 10."""
    coverage_penalty: float | None
    """A hypothesis that leaves out a part of the content scores less: so many times sum(log(min(a, 1))) over the source
    tokens is added to its score, `a` being the attention of all target tokens to a source token, in the mean of the
    last layer's heads. Beam search orders what it has finished by that. From 0 to 10.
    """
    max_new_tokens_ratio: float | None
    """Most target tokens for each token of the source; `max_new_tokens` holds too. 0: any number. From 0 to 1000."""
    min_new_tokens: int | None
    """No hypothesis ends before so many target tokens. From 0 to `max_new_tokens`."""
    exponential_decay_length_penalty: float | None
    """From `exponential_decay_start` on, ending becomes likelier by this factor with every token. From 0.01 to 100."""
    exponential_decay_start: int | None
    """Target tokens before `exponential_decay_length_penalty` begins. From 0 to 2147483647."""
    stop_strings: Sequence[str] | None
    """Texts that end a hypothesis: with the token that completes one in its text, which stays. At most 64, each of 1 to
    256 characters. A space before a word counts, also before the first.
    """
    return_alternatives: bool | None
    """The `num_return_sequences` hypotheses begin with different tokens, the likeliest that there are after
    `target_prefix`, and go on greedily. They come in the order of these tokens. Only with one beam.
    """
    min_alternative_expansion_prob: float | None
    """An alternative begins with a token of at least this probability; there may be fewer alternatives then. The best
    one is always there. From 0 to 1.
    """
    num_beam_groups: int | None
    """The beams are so many groups of equal size, which `diversity_penalty` keeps apart (diverse beam search). Beams of
    one group are not. From 1 to `num_beams`, of which it is a divisor.
    """
    diversity_penalty: float | None
    """What a token costs a group for each time that the groups before it have chosen it at the same step. Scores have
    it too. From 0 to 100; above 0 with several groups, and only with them.
    """
    repetition_penalty: float | None
    """Tokens that the target has become so many times less likely; below 1 more likely. From 0.01 to 100."""
    no_repeat_ngram_size: int | None
    """No sequence of so many tokens occurs twice in a target. 0: any may. From 0 to 1000."""
    encoder_repetition_penalty: float | None
    """Tokens of the source become so many times more likely; below 1 less likely. From 0.01 to 100. Only for models
    with one vocabulary of source and target.
    """
    encoder_no_repeat_ngram_size: int | None
    """No sequence of so many tokens of the source occurs in the target. 0: any may. From 0 to 1000. Only for the same
    models.
    """
    target_prefix: Phrase | None
    """What every target begins with. Its text is part of the target's; its tokens are not counted, nor scored."""
    prefix_bias_beta: float | None
    """`target_prefix` is preferred and no longer forced, with so much of the probability as long as it is followed; its
    tokens are chosen then, and count. 0: it is forced. From 0 to 1.
    """
    forced_bos_token: Phrase | None
    """The one token that every target is forced to begin with, instead of the model's."""
    bad_words: Sequence[Phrase] | None
    """Phrases that no target has. None: the model's own. At most 1000, each of at most 64 tokens."""
    sequence_bias: Sequence[tuple[Phrase, float]] | None
    """What is added to the scores of phrases: above 0 makes them likelier. At most 1000, each of at most 64 tokens."""
    suppress_tokens: Sequence[int] | None
    """Tokens that no target has. At most 10000."""
    begin_suppress_tokens: Sequence[int] | None
    """Tokens that no target begins with. At most 10000."""
    disable_unknown: bool | None
    """No target has an unknown token."""
    must_include: Sequence[Phrase] | None
    """Phrases that every hypothesis has, each as often as it is given; they may overlap. Only with two beams or more,
    and without `stop_strings`. At most 64, each of at most 64 tokens, and not more tokens in all than `max_new_tokens`.
    A text is had as the tokens that the model would write it with at the beginning of a word.
    """
    must_exclude: Sequence[Phrase] | None
    """Phrases that no hypothesis has. A text, of 1 to 256 characters, is in no part of theirs, however it would be
    written and inside of words too; token ids are as those of `bad_words`. At most 1000.
    """
    do_sample: bool | None
    """Tokens are drawn, and not the best taken. Only with one beam."""
    temperature: float | None
    """What scores are divided by before a token is drawn: above 1 makes the unlikely likelier. From 0.01 to 100."""
    top_k: int | None
    """One of so many best tokens is drawn. 0: any. From 0 to 2147483647."""
    top_p: float | None
    """One of the best tokens that have so much of the probability together is drawn. From 0 to 1."""
    min_p: float | None
    """A token is drawn that has at least so much of the best one's probability. From 0 to 1."""
    top_h: float | None
    """One of the best tokens that have so much of the entropy together is drawn, of a hundred. 0: any. From 0 to 1."""
    typical_p: float | None
    """One of the tokens that tell as much as is to be expected is drawn, so much probability of them. From 0 to 1."""
    epsilon_cutoff: float | None
    """A token of at least this probability is drawn. From 0 to 1."""
    eta_cutoff: float | None
    """A token of at least this probability is drawn, or of less where many are likely. From 0 to 1."""
    seed: int | None
    """What is drawn depends on it, the content and the options alone. From 0 to 9007199254740992. If not set, one is
    chosen; Translation.seed says which.
    """
    mbr_samples: int | None
    """So many samples are drawn, and the `num_return_sequences` returned that are most like all of them, best first:
    minimum Bayes risk, by chrF. Equal texts count once. 0: what is drawn is returned. Only with `do_sample`, and not of
    streams. From 0 to 64, and not more than the server's rows.
    """
    with_tokens: bool | None
    """Hypothesis.target_tokens is filled in: the tokens, with their log-probabilities."""
    with_alignment: bool | None
    """Hypothesis.alignment is filled in: from which source token each token comes. Only for models with Model.aligns;
    not by way of a third language.
    """
    with_attention: bool | None
    """Hypothesis.attention and Translation.source_attention are filled in: where every head of every layer looks. With
    `max_new_tokens` tokens in each hypothesis they must fit a message. Only for models with Model.attends; not by way
    of a third language. The server does not keep such an answer.
    """
    retry_on_guard: bool | None
    """A translation with a guard is made again with 4 beams and `no_repeat_ngram_size` 3, unless it is merely cut, and
    the one with fewer guards is the answer; where the server has no room or time for it, the first one. Not of streams,
    nor beside vectors.
    """


@dataclass(frozen=True, slots=True)
class Decoding:
    """How target tokens are chosen. The names and meanings are those of Hugging Face `generate`."""

    num_beams: int
    """Hypotheses kept at every step. 1 is greedy search. From 1 to 16, and not more than the server's rows."""
    num_return_sequences: int
    """Hypotheses returned for each content, best first. From 1 to `num_beams`, or of `do_sample` so many samples, from
    1 to 16.
    """
    max_new_tokens: int
    """Most target tokens of a hypothesis, the end token included. From 1 to Model.max_new_tokens."""
    length_penalty: float
    """A beam hypothesis scores sum(log p) / length^length_penalty: above 0 favours long ones. From -10 to 10."""
    early_stopping: EarlyStopping
    """When beam search ends. Greedy search ignores it."""
    patience: float
    """Beam search ends when so many times `num_beams` hypotheses are finished. From 0.1 to 10."""
    coverage_penalty: float
    """A hypothesis that leaves out a part of the content scores less: so many times sum(log(min(a, 1))) over the source
    tokens is added to its score, `a` being the attention of all target tokens to a source token, in the mean of the
    last layer's heads. Beam search orders what it has finished by that. From 0 to 10.
    """
    max_new_tokens_ratio: float
    """Most target tokens for each token of the source; `max_new_tokens` holds too. 0: any number. From 0 to 1000."""
    min_new_tokens: int
    """No hypothesis ends before so many target tokens. From 0 to `max_new_tokens`."""
    exponential_decay_length_penalty: float
    """From `exponential_decay_start` on, ending becomes likelier by this factor with every token. From 0.01 to 100."""
    exponential_decay_start: int
    """Target tokens before `exponential_decay_length_penalty` begins. From 0 to 2147483647."""
    stop_strings: Sequence[str]
    """Texts that end a hypothesis: with the token that completes one in its text, which stays. At most 64, each of 1 to
    256 characters. A space before a word counts, also before the first.
    """
    return_alternatives: bool
    """The `num_return_sequences` hypotheses begin with different tokens, the likeliest that there are after
    `target_prefix`, and go on greedily. They come in the order of these tokens. Only with one beam.
    """
    min_alternative_expansion_prob: float
    """An alternative begins with a token of at least this probability; there may be fewer alternatives then. The best
    one is always there. From 0 to 1.
    """
    num_beam_groups: int
    """The beams are so many groups of equal size, which `diversity_penalty` keeps apart (diverse beam search). Beams of
    one group are not. From 1 to `num_beams`, of which it is a divisor.
    """
    diversity_penalty: float
    """What a token costs a group for each time that the groups before it have chosen it at the same step. Scores have
    it too. From 0 to 100; above 0 with several groups, and only with them.
    """
    repetition_penalty: float
    """Tokens that the target has become so many times less likely; below 1 more likely. From 0.01 to 100."""
    no_repeat_ngram_size: int
    """No sequence of so many tokens occurs twice in a target. 0: any may. From 0 to 1000."""
    encoder_repetition_penalty: float
    """Tokens of the source become so many times more likely; below 1 less likely. From 0.01 to 100. Only for models
    with one vocabulary of source and target.
    """
    encoder_no_repeat_ngram_size: int
    """No sequence of so many tokens of the source occurs in the target. 0: any may. From 0 to 1000. Only for the same
    models.
    """
    target_prefix: Phrase
    """What every target begins with. Its text is part of the target's; its tokens are not counted, nor scored."""
    prefix_bias_beta: float
    """`target_prefix` is preferred and no longer forced, with so much of the probability as long as it is followed; its
    tokens are chosen then, and count. 0: it is forced. From 0 to 1.
    """
    forced_bos_token: Phrase
    """The one token that every target is forced to begin with, instead of the model's."""
    bad_words: Sequence[Phrase]
    """Phrases that no target has. None: the model's own. At most 1000, each of at most 64 tokens."""
    sequence_bias: Sequence[tuple[Phrase, float]]
    """What is added to the scores of phrases: above 0 makes them likelier. At most 1000, each of at most 64 tokens."""
    suppress_tokens: Sequence[int]
    """Tokens that no target has. At most 10000."""
    begin_suppress_tokens: Sequence[int]
    """Tokens that no target begins with. At most 10000."""
    disable_unknown: bool
    """No target has an unknown token."""
    must_include: Sequence[Phrase]
    """Phrases that every hypothesis has, each as often as it is given; they may overlap. Only with two beams or more,
    and without `stop_strings`. At most 64, each of at most 64 tokens, and not more tokens in all than `max_new_tokens`.
    A text is had as the tokens that the model would write it with at the beginning of a word.
    """
    must_exclude: Sequence[Phrase]
    """Phrases that no hypothesis has. A text, of 1 to 256 characters, is in no part of theirs, however it would be
    written and inside of words too; token ids are as those of `bad_words`. At most 1000.
    """
    do_sample: bool
    """Tokens are drawn, and not the best taken. Only with one beam."""
    temperature: float
    """What scores are divided by before a token is drawn: above 1 makes the unlikely likelier. From 0.01 to 100."""
    top_k: int
    """One of so many best tokens is drawn. 0: any. From 0 to 2147483647."""
    top_p: float
    """One of the best tokens that have so much of the probability together is drawn. From 0 to 1."""
    min_p: float
    """A token is drawn that has at least so much of the best one's probability. From 0 to 1."""
    top_h: float
    """One of the best tokens that have so much of the entropy together is drawn, of a hundred. 0: any. From 0 to 1."""
    typical_p: float
    """One of the tokens that tell as much as is to be expected is drawn, so much probability of them. From 0 to 1."""
    epsilon_cutoff: float
    """A token of at least this probability is drawn. From 0 to 1."""
    eta_cutoff: float
    """A token of at least this probability is drawn, or of less where many are likely. From 0 to 1."""
    seed: int
    """What is drawn depends on it, the content and the options alone. From 0 to 9007199254740992. If not set, one is
    chosen; Translation.seed says which.
    """
    mbr_samples: int
    """So many samples are drawn, and the `num_return_sequences` returned that are most like all of them, best first:
    minimum Bayes risk, by chrF. Equal texts count once. 0: what is drawn is returned. Only with `do_sample`, and not of
    streams. From 0 to 64, and not more than the server's rows.
    """
    with_tokens: bool
    """Hypothesis.target_tokens is filled in: the tokens, with their log-probabilities."""
    with_alignment: bool
    """Hypothesis.alignment is filled in: from which source token each token comes. Only for models with Model.aligns;
    not by way of a third language.
    """
    with_attention: bool
    """Hypothesis.attention and Translation.source_attention are filled in: where every head of every layer looks. With
    `max_new_tokens` tokens in each hypothesis they must fit a message. Only for models with Model.attends; not by way
    of a third language. The server does not keep such an answer.
    """
    retry_on_guard: bool
    """A translation with a guard is made again with 4 beams and `no_repeat_ngram_size` 3, unless it is merely cut, and
    the one with fewer guards is the answer; where the server has no room or time for it, the first one. Not of streams,
    nor beside vectors.
    """


DOCS = {
    "num_beams": "Hypotheses kept at every step. 1 is greedy search. From 1 to 16, and not more than the server's rows.",
    "num_return_sequences": 'Hypotheses returned for each content, best first. From 1 to `num_beams`, or of `do_sample` so many samples, from 1 to 16.',
    "max_new_tokens": 'Most target tokens of a hypothesis, the end token included. From 1 to Model.max_new_tokens.',
    "length_penalty": 'A beam hypothesis scores sum(log p) / length^length_penalty: above 0 favours long ones. From -10 to 10.',
    "early_stopping": 'When beam search ends. Greedy search ignores it.',
    "patience": 'Beam search ends when so many times `num_beams` hypotheses are finished. From 0.1 to 10.',
    "coverage_penalty": "A hypothesis that leaves out a part of the content scores less: so many times sum(log(min(a, 1))) over the source tokens is added to its score, `a` being the attention of all target tokens to a source token, in the mean of the last layer's heads. Beam search orders what it has finished by that. From 0 to 10.",
    "max_new_tokens_ratio": 'Most target tokens for each token of the source; `max_new_tokens` holds too. 0: any number. From 0 to 1000.',
    "min_new_tokens": 'No hypothesis ends before so many target tokens. From 0 to `max_new_tokens`.',
    "exponential_decay_length_penalty": 'From `exponential_decay_start` on, ending becomes likelier by this factor with every token. From 0.01 to 100.',
    "exponential_decay_start": 'Target tokens before `exponential_decay_length_penalty` begins. From 0 to 2147483647.',
    "stop_strings": 'Texts that end a hypothesis: with the token that completes one in its text, which stays. At most 64, each of 1 to 256 characters. A space before a word counts, also before the first.',
    "return_alternatives": 'The `num_return_sequences` hypotheses begin with different tokens, the likeliest that there are after `target_prefix`, and go on greedily. They come in the order of these tokens. Only with one beam.',
    "min_alternative_expansion_prob": 'An alternative begins with a token of at least this probability; there may be fewer alternatives then. The best one is always there. From 0 to 1.',
    "num_beam_groups": 'The beams are so many groups of equal size, which `diversity_penalty` keeps apart (diverse beam search). Beams of one group are not. From 1 to `num_beams`, of which it is a divisor.',
    "diversity_penalty": 'What a token costs a group for each time that the groups before it have chosen it at the same step. Scores have it too. From 0 to 100; above 0 with several groups, and only with them.',
    "repetition_penalty": 'Tokens that the target has become so many times less likely; below 1 more likely. From 0.01 to 100.',
    "no_repeat_ngram_size": 'No sequence of so many tokens occurs twice in a target. 0: any may. From 0 to 1000.',
    "encoder_repetition_penalty": 'Tokens of the source become so many times more likely; below 1 less likely. From 0.01 to 100. Only for models with one vocabulary of source and target.',
    "encoder_no_repeat_ngram_size": 'No sequence of so many tokens of the source occurs in the target. 0: any may. From 0 to 1000. Only for the same models.',
    "target_prefix": "What every target begins with. Its text is part of the target's; its tokens are not counted, nor scored.",
    "prefix_bias_beta": '`target_prefix` is preferred and no longer forced, with so much of the probability as long as it is followed; its tokens are chosen then, and count. 0: it is forced. From 0 to 1.',
    "forced_bos_token": "The one token that every target is forced to begin with, instead of the model's.",
    "bad_words": "Phrases that no target has. None: the model's own. At most 1000, each of at most 64 tokens.",
    "sequence_bias": 'What is added to the scores of phrases: above 0 makes them likelier. At most 1000, each of at most 64 tokens.',
    "suppress_tokens": 'Tokens that no target has. At most 10000.',
    "begin_suppress_tokens": 'Tokens that no target begins with. At most 10000.',
    "disable_unknown": 'No target has an unknown token.',
    "must_include": 'Phrases that every hypothesis has, each as often as it is given; they may overlap. Only with two beams or more, and without `stop_strings`. At most 64, each of at most 64 tokens, and not more tokens in all than `max_new_tokens`. A text is had as the tokens that the model would write it with at the beginning of a word.',
    "must_exclude": 'Phrases that no hypothesis has. A text, of 1 to 256 characters, is in no part of theirs, however it would be written and inside of words too; token ids are as those of `bad_words`. At most 1000.',
    "do_sample": 'Tokens are drawn, and not the best taken. Only with one beam.',
    "temperature": 'What scores are divided by before a token is drawn: above 1 makes the unlikely likelier. From 0.01 to 100.',
    "top_k": 'One of so many best tokens is drawn. 0: any. From 0 to 2147483647.',
    "top_p": 'One of the best tokens that have so much of the probability together is drawn. From 0 to 1.',
    "min_p": "A token is drawn that has at least so much of the best one's probability. From 0 to 1.",
    "top_h": 'One of the best tokens that have so much of the entropy together is drawn, of a hundred. 0: any. From 0 to 1.',
    "typical_p": 'One of the tokens that tell as much as is to be expected is drawn, so much probability of them. From 0 to 1.',
    "epsilon_cutoff": 'A token of at least this probability is drawn. From 0 to 1.',
    "eta_cutoff": 'A token of at least this probability is drawn, or of less where many are likely. From 0 to 1.',
    "seed": 'What is drawn depends on it, the content and the options alone. From 0 to 9007199254740992. If not set, one is chosen; Translation.seed says which.',
    "mbr_samples": "So many samples are drawn, and the `num_return_sequences` returned that are most like all of them, best first: minimum Bayes risk, by chrF. Equal texts count once. 0: what is drawn is returned. Only with `do_sample`, and not of streams. From 0 to 64, and not more than the server's rows.",
    "with_tokens": 'Hypothesis.target_tokens is filled in: the tokens, with their log-probabilities.',
    "with_alignment": 'Hypothesis.alignment is filled in: from which source token each token comes. Only for models with Model.aligns; not by way of a third language.',
    "with_attention": 'Hypothesis.attention and Translation.source_attention are filled in: where every head of every layer looks. With `max_new_tokens` tokens in each hypothesis they must fit a message. Only for models with Model.attends; not by way of a third language. The server does not keep such an answer.',
    "retry_on_guard": 'A translation with a guard is made again with 4 beams and `no_repeat_ngram_size` 3, unless it is merely cut, and the one with fewer guards is the answer; where the server has no room or time for it, the first one. Not of streams, nor beside vectors.',
}
"""What the command line says of each."""

GROUPS = {
    "num_beams": "Beams and length",
    "num_return_sequences": "Beams and length",
    "max_new_tokens": "Beams and length",
    "length_penalty": "Beams and length",
    "early_stopping": "Beams and length",
    "patience": "Beams and length",
    "coverage_penalty": "Beams and length",
    "max_new_tokens_ratio": "Beams and length",
    "min_new_tokens": "Beams and length",
    "exponential_decay_length_penalty": "Beams and length",
    "exponential_decay_start": "Beams and length",
    "stop_strings": "Beams and length",
    "return_alternatives": "Beams and length",
    "min_alternative_expansion_prob": "Beams and length",
    "num_beam_groups": "Beams and length",
    "diversity_penalty": "Beams and length",
    "repetition_penalty": "Repetition",
    "no_repeat_ngram_size": "Repetition",
    "encoder_repetition_penalty": "Repetition",
    "encoder_no_repeat_ngram_size": "Repetition",
    "target_prefix": "What is said",
    "prefix_bias_beta": "What is said",
    "forced_bos_token": "What is said",
    "bad_words": "What is said",
    "sequence_bias": "What is said",
    "suppress_tokens": "What is said",
    "begin_suppress_tokens": "What is said",
    "disable_unknown": "What is said",
    "must_include": "What is said",
    "must_exclude": "What is said",
    "do_sample": "Sampling",
    "temperature": "Sampling",
    "top_k": "Sampling",
    "top_p": "Sampling",
    "min_p": "Sampling",
    "top_h": "Sampling",
    "typical_p": "Sampling",
    "epsilon_cutoff": "Sampling",
    "eta_cutoff": "Sampling",
    "seed": "Sampling",
    "mbr_samples": "Sampling",
    "with_tokens": "What comes back",
    "with_alignment": "What comes back",
    "with_attention": "What comes back",
    "retry_on_guard": "What comes back",
}
"""What each is about."""
