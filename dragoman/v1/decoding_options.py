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


DOCS = {
    "num_beams": "Hypotheses kept at every step. 1 is greedy search. From 1 to 16, and not more than the server's rows.",
    "num_return_sequences": 'Hypotheses returned for each content, best first. From 1 to `num_beams`.',
    "max_new_tokens": 'Most target tokens of a hypothesis, the end token included. From 1 to Model.max_new_tokens.',
    "length_penalty": 'A beam hypothesis scores sum(log p) / length^length_penalty: above 0 favours long ones. From -10 to 10.',
    "early_stopping": 'When beam search ends. Greedy search ignores it.',
}
"""What the command line says of each."""
