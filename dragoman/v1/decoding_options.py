"""DecodingOptions as plain Python. Generated from dragoman/v1/decoding.proto by `make proto`."""

from dataclasses import dataclass
from typing import TypedDict

from dragoman.enums import EarlyStopping


class DecodingKeywords(TypedDict, total=False):
    """How target tokens are chosen. The names and meanings are those of Hugging Face `generate`. What is left out, or
    None, takes the model's default.
    """

    num_beams: int | None
    """Hypotheses kept at every step. 1 is greedy search. From 1 to 16, and not more than the server's rows."""
    num_return_sequences: int | None
    """Hypotheses returned for each content, best first. From 1 to `num_beams`."""
    max_new_tokens: int | None
    """Most target tokens of a hypothesis, the end token included. From 1 to Model.max_new_tokens."""
    length_penalty: float | None
    """A beam hypothesis scores sum(log p) / length^length_penalty: above 0 favours long ones. From -10 to 10."""
    early_stopping: EarlyStopping | None
    """When beam search ends. Greedy search ignores it."""
    repetition_penalty: float | None
    """Tokens that the target has become so many times less likely; below 1 more likely. From 0.01 to 100."""
    no_repeat_ngram_size: int | None
    """No sequence of so many tokens occurs twice in a target. 0: any may. From 0 to 1000."""
    encoder_repetition_penalty: float | None
    """Tokens of the source become so many times more likely; below 1 less likely. From 0.01 to 100."""
    encoder_no_repeat_ngram_size: int | None
    """No sequence of so many tokens of the source occurs in the target. 0: any may. From 0 to 1000."""
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


@dataclass(frozen=True, slots=True)
class Decoding:
    """How target tokens are chosen. The names and meanings are those of Hugging Face `generate`."""

    num_beams: int
    """Hypotheses kept at every step. 1 is greedy search. From 1 to 16, and not more than the server's rows."""
    num_return_sequences: int
    """Hypotheses returned for each content, best first. From 1 to `num_beams`."""
    max_new_tokens: int
    """Most target tokens of a hypothesis, the end token included. From 1 to Model.max_new_tokens."""
    length_penalty: float
    """A beam hypothesis scores sum(log p) / length^length_penalty: above 0 favours long ones. From -10 to 10."""
    early_stopping: EarlyStopping
    """When beam search ends. Greedy search ignores it."""
    repetition_penalty: float
    """Tokens that the target has become so many times less likely; below 1 more likely. From 0.01 to 100."""
    no_repeat_ngram_size: int
    """No sequence of so many tokens occurs twice in a target. 0: any may. From 0 to 1000."""
    encoder_repetition_penalty: float
    """Tokens of the source become so many times more likely; below 1 less likely. From 0.01 to 100."""
    encoder_no_repeat_ngram_size: int
    """No sequence of so many tokens of the source occurs in the target. 0: any may. From 0 to 1000."""
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


DOCS = {
    "num_beams": "Hypotheses kept at every step. 1 is greedy search. From 1 to 16, and not more than the server's rows.",
    "num_return_sequences": 'Hypotheses returned for each content, best first. From 1 to `num_beams`.',
    "max_new_tokens": 'Most target tokens of a hypothesis, the end token included. From 1 to Model.max_new_tokens.',
    "length_penalty": 'A beam hypothesis scores sum(log p) / length^length_penalty: above 0 favours long ones. From -10 to 10.',
    "early_stopping": 'When beam search ends. Greedy search ignores it.',
    "repetition_penalty": 'Tokens that the target has become so many times less likely; below 1 more likely. From 0.01 to 100.',
    "no_repeat_ngram_size": 'No sequence of so many tokens occurs twice in a target. 0: any may. From 0 to 1000.',
    "encoder_repetition_penalty": 'Tokens of the source become so many times more likely; below 1 less likely. From 0.01 to 100.',
    "encoder_no_repeat_ngram_size": 'No sequence of so many tokens of the source occurs in the target. 0: any may. From 0 to 1000.',
    "do_sample": 'Tokens are drawn, and not the best taken. Only with one beam.',
    "temperature": 'What scores are divided by before a token is drawn: above 1 makes the unlikely likelier. From 0.01 to 100.',
    "top_k": 'One of so many best tokens is drawn. 0: any. From 0 to 2147483647.',
    "top_p": 'One of the best tokens that have so much of the probability together is drawn. From 0 to 1.',
    "min_p": "A token is drawn that has at least so much of the best one's probability. From 0 to 1.",
    "typical_p": 'One of the tokens that tell as much as is to be expected is drawn, so much probability of them. From 0 to 1.',
    "epsilon_cutoff": 'A token of at least this probability is drawn. From 0 to 1.',
    "eta_cutoff": 'A token of at least this probability is drawn, or of less where many are likely. From 0 to 1.',
    "seed": 'What is drawn depends on it, the content and the options alone. From 0 to 9007199254740992. If not set, one is chosen; Translation.seed says which.',
}
"""What the command line says of each."""
