"""One request in a running batch: its search, and what it has cost so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.decoder import NOT_FINITE, Ask
from engine.request import Hypothesis, Timings, Translate
from engine.search.search import FINISHED, Advance, Search, Seen


@dataclass(slots=True, eq=False)
class Running:
    """A request in the batch. Its row is fed its prefix at first, and then searched."""

    request: Translate
    queued: float
    """Seconds from arrival to the start of the encoder run."""
    encoded: float
    """Seconds of the encoder run."""
    joined: float
    """When the encoder run ended."""
    steps_before: int
    """Steps that the batch had made by then."""
    computed_before: int
    """Rows that the batch had computed by then."""
    greedy: bool = False
    """Its row is searched greedily, with all others that are."""
    search: Search | None = None
    """Any other search, which its rows are for."""
    rows: Sequence[int] = field(default=())
    """Those of `search`."""
    finite: bool = True
    """What the model computes for `search` is."""
    more_rows: int = 0
    """That `search` had computed, besides one at every step."""
    streamed: int = 0
    """Tokens of `search` that are delivered."""

    def steps(self, steps: int) -> int:
        """That it has taken part in. `steps`: those that the batch has made by now."""
        return steps - self.steps_before

    def tokens(self, steps: int) -> int:
        """Source and target tokens that its rows hold after so many steps of the batch."""
        return max(1, len(self.rows)) * (len(self.request.source_ids) + self.steps(steps))

    def computed(self, steps: int) -> int:
        """Rows that were computed for it in so many steps of the batch: one for each hypothesis and step."""
        return self.steps(steps) + self.more_rows

    @property
    def ask(self) -> Ask:
        """What its search must see of its rows after the next step."""
        assert self.search is not None
        return self.search.ask

    def begin(self, search: Search, row: int) -> None:
        """Its prefix is fed: a search of its own begins in its row."""
        self.search, self.rows = search, [row]

    def stay(self, tokens: Sequence[int]) -> Advance:
        """Every row of its search goes on as it is. tokens: what each row of the batch is fed next."""
        return Advance(range(len(self.rows)), [tokens[row] for row in self.rows])

    def advance(self, seen: Seen) -> Advance:
        """A step was made: whatever its search wants, or FINISHED if there is nothing to see."""
        assert self.search is not None
        self.more_rows += len(self.rows) - 1
        self.finite = all(tokens[0] != NOT_FINITE for tokens in seen.token_ids)
        return self.search.advance(seen) if self.finite else FINISHED

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """What its search has found. None: the model's numbers are not finite."""
        assert self.search is not None
        return self.search.hypotheses() if self.finite else ()

    def newly_settled(self) -> tuple[int, ...]:
        """The tokens that its search has settled since it was asked last."""
        assert self.search is not None
        settled = self.search.settled()
        new = settled[self.streamed :]
        self.streamed += len(new)
        return new

    def timings(self, now: float, steps: int, computed: int) -> Timings:
        """So far. The batch has made so many steps and computed so many rows by now."""
        mean_rows = (computed - self.computed_before) / self.steps(steps)
        return Timings(self.queued, self.encoded, now - self.joined, self.steps(steps), mean_rows)
