"""The samples or alternatives of one request: each runs in a row of its own, as if it were alone."""

from dataclasses import dataclass, field

from engine.request import Hypothesis


@dataclass(slots=True)
class Samples:
    """What has become of them so far."""

    left: int
    """That still run."""
    computed: int = 0
    """Rows that were computed for those that do not."""
    failed: bool = False
    """The model's numbers were not finite for one of them."""
    found: dict[int, Hypothesis] = field(default_factory=dict)
    """By their numbers."""

    def end(self, sample: int, hypotheses: tuple[Hypothesis, ...], computed: int) -> bool:
        """One of them has ended; nothing was found, if it was dropped or failed. Whether it was the last."""
        self.left -= 1
        self.computed += computed
        if hypotheses:
            self.found[sample] = hypotheses[0]
        else:
            self.failed = True
        return not self.left

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """In the order of their numbers, but for alternatives that there are not. None, if one failed."""
        return () if self.failed else tuple(one for _, one in sorted(self.found.items()) if one.token_ids)
