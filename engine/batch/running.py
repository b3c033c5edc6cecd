"""One request in a running batch: its rows, and what it has cost so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.decoder import Ask
from engine.request import Timings, Translate
from engine.search.search import Advance, Search, Seen

STAY = Ask()
"""Of a row that is fed its prefix: nothing is chosen yet, and a decoder finds one token at least."""


@dataclass(slots=True, eq=False)
class Running:
    """A request in the batch."""

    request: Translate
    search: Search
    queued: float
    """Seconds from arrival to the start of the encoder run."""
    encoded: float
    """Seconds of the encoder run."""
    joined: float
    """When the encoder run ended."""
    computed_before: int
    """Rows that the batch had computed by then."""
    rows: Sequence[int] = field(default=())
    steps: int = 0
    computed: int = 0
    """Rows that were computed for it: one for each hypothesis and step."""
    streamed: int = 0
    """Tokens already delivered."""

    @property
    def tokens(self) -> int:
        """Source and target tokens that its rows hold."""
        return len(self.rows) * (len(self.request.source_ids) + self.steps)

    @property
    def ask(self) -> Ask:
        """What must be seen of its rows after the next step."""
        return self.search.ask if self.steps + 1 >= len(self.request.rules.prefix_ids) else STAY

    @property
    def chooses(self) -> bool:
        """The last step was the first whose tokens its search was shown."""
        return self.steps == len(self.request.rules.prefix_ids)

    def stay(self, tokens: Sequence[int]) -> Advance:
        """Every row goes on as it is. tokens: what each row of the batch is fed next."""
        return Advance(range(len(self.rows)), [tokens[row] for row in self.rows])

    def advance(self, seen: Seen) -> Advance:
        """A step was made: feeds what is left of the prefix, then whatever its search wants."""
        self.steps += 1
        self.computed += len(self.rows)
        prefix = self.request.rules.prefix_ids
        return Advance((0,), (prefix[self.steps],)) if self.steps < len(prefix) else self.search.advance(seen)

    def newly_settled(self) -> tuple[int, ...]:
        """The tokens that are settled since it was asked last."""
        settled = self.search.settled()
        new = settled[self.streamed :]
        self.streamed += len(new)
        return new

    def timings(self, now: float, computed: int) -> Timings:
        """So far. `computed`: rows that the batch has computed by now."""
        mean_rows = (computed - self.computed_before) / self.steps
        return Timings(self.queued, self.encoded, now - self.joined, self.steps, mean_rows)
