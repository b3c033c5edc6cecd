"""How probable given translations are."""

from dataclasses import dataclass, field

from dragoman.results.translation import TargetToken, Timings


@dataclass(frozen=True, slots=True)
class TargetScore:
    """How probable a given translation is."""

    text: str
    """As its tokens have it: the tokenizer may write it in another way."""
    log_prob: float
    """The logarithm of its probability: the sum of its tokens' log_prob."""
    score: float
    """log_prob / tokens^length_penalty, with the model's own length penalty: what `Hypothesis.score` would be."""
    tokens: int
    """The end token included."""
    target_tokens: tuple[TargetToken, ...]
    """Its tokens, the end token included."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of given translations of one text."""

    targets: tuple[TargetScore, ...]
    """In the order in which they were given."""
    source_tokens: int
    """Of the text, the end token included."""
    timings: Timings = field(compare=False)
    """`decode_s` is the time for all translations. There are no steps."""

    @property
    def best(self) -> TargetScore:
        """The one with the highest score."""
        return max(self.targets, key=lambda target: target.score)
