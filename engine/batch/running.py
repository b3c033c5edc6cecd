"""One request in a running batch: how it is searched, and what it has cost so far."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.batch.samples import Samples
from engine.processors.processed import Processed
from engine.request import Timings, Translate
from models.encoding import Vectors


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
    vectors: Vectors | None = None
    """Of its source, if it wants them too."""
    hidden: NDArray[np.float32] | None = None
    """Hidden states of its source [tokens, width], if its hypotheses are looked at once they are found."""
    greedy: bool = False
    """Its row is searched greedily, with all others that are."""
    number: int | None = None
    """Of its beam search."""
    samples: Samples | None = None
    """What becomes of all samples of the request, if it wants several."""
    sample: int = 0
    """Which of them this is."""
    processed: Processed | None = None
    """What becomes of the scores that its search sees."""
    rows: int = 1
    """That it holds."""
    since: int = 0
    """Steps that the batch had made when it came to hold them."""
    more_rows: int = 0
    """That were computed for it before that, besides one at every step."""
    streamed: int = 0
    """Tokens of its beam search that are delivered."""

    @property
    def streams(self) -> bool:
        """Its request is told every token: of the first sample."""
        return self.request.stream and not self.sample

    @property
    def processing(self) -> Processed | None:
        """The same once it is searched: what its row is fed before is not chosen."""
        return self.processed if self.greedy or self.number is not None else None

    def steps(self, steps: int) -> int:
        """That it has taken part in. `steps`: those that the batch has made by now."""
        return steps - self.steps_before

    def tokens(self, steps: int) -> int:
        """Source and target tokens that its rows hold after so many steps of the batch."""
        return self.rows * (len(self.request.source_ids) + self.steps(steps))

    def hold(self, rows: int, steps: int) -> None:
        """It holds so many rows after so many steps of the batch."""
        self.more_rows += (self.rows - 1) * (steps - self.since)
        self.rows, self.since = rows, steps

    def computed(self, steps: int) -> int:
        """Rows that were computed for it in so many steps of the batch: one for each hypothesis and step."""
        return self.steps(steps) + self.more_rows + (self.rows - 1) * (steps - self.since)

    def timings(self, now: float, steps: int, computed: int) -> Timings:
        """So far. The batch has made so many steps and computed so many rows by now."""
        mean_rows = (computed - self.computed_before) / self.steps(steps)
        return Timings(self.queued, self.encoded, now - self.joined, self.steps(steps), mean_rows)
