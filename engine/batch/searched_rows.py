"""The rows of a running batch: whose each is, what it is fed next, and how it goes on after a step."""

from collections.abc import Collection, Iterator, Sequence
from typing import Generic

from engine.batch.placing import place
from engine.batch.running import Running
from engine.decoder import Ask, Cache, Found, S
from engine.observer import WorkerObserver
from engine.request import Hypothesis
from engine.search import is_greedy, open_search
from engine.search.greedy import GreedyRows
from engine.search.search import Advance, Seen


class SearchedRows(Generic[S]):
    """Rows 0..live-1 of a cache.

    A request holds as many of them as its search has hypotheses, anywhere among the others. Greedy search has one, and
    is one search for all of them; every other search is an object of its own.
    """

    def __init__(self, cache: Cache[S], rows: int, told: WorkerObserver) -> None:
        self._cache, self._told = cache, told
        self.running: dict[Running, None] = {}
        """Whoever holds rows."""
        self._owners: list[Running] = []
        """Whose each row is [live]."""
        self._greedy = GreedyRows(rows)
        self._searching: list[Running] = []
        """Those with a search of their own."""
        self._starting: list[Running] = []
        """Those that have no token yet."""
        self._streaming = 0
        """How many want to be told every token."""
        self.steps = 0
        """So many were made."""
        self.tokens = 0
        """Source and target tokens that the rows hold."""

    @property
    def live(self) -> int:
        """How many there are."""
        return len(self._owners)

    def join(self, running: Running, source: S) -> None:
        """One more row, behind the others."""
        self._cache.join(source)
        self._greedy.join()
        self._owners.append(running)
        self.running[running] = None
        self._starting.append(running)
        self._streaming += running.request.stream
        self.tokens += len(running.request.source_ids)
        self._feed_prefix(running)

    def begin_step(self) -> None:
        """Starts a step of all rows."""
        asks = [running.ask for running in self._searching]
        ask = Ask.of_all([self._greedy.ask, *asks]) if asks else self._greedy.ask
        self._cache.begin_step(self._greedy.fed, ask)

    def end_step(self) -> Found:
        """Waits for it."""
        found = self._cache.end_step()
        self.steps += 1
        self.tokens += self.live
        return found

    def advance(self, found: Found) -> dict[Running, tuple[Hypothesis, ...]]:
        """Every row goes on with its best token, but for those of searches, which say how theirs do.

        Returns those whose search is over, and what it has found: nothing, if the model's numbers were not finite.
        """
        over = self._greedy.advance(found)
        answers = {self._owners[row]: self._greedy.hypotheses(row) for row in over}
        advances = self._advance_searches(found) if self._searching else []
        answers |= {one: one.hypotheses() for one, advance in advances if not advance.parents}
        if answers or advances:
            self._keep(answers, [(one, advance) for one, advance in advances if advance.parents])
        return answers

    def drop(self, leaving: Collection[Running]) -> None:
        """They leave; the others stay as they are."""
        fed = self._greedy.fed.tolist()
        self._keep(leaving, [(one, one.stay(fed)) for one in self._searching if one not in leaving])

    def start(self) -> list[Running]:
        """Feeds what is left of the prefixes. Returns those that have got their first token."""
        starting, self._starting = self._starting, []
        started = []
        for running in starting:
            if running.steps(self.steps) >= len(running.request.rules.prefix_ids):
                started.append(running)
            elif running in self.running:
                self._starting.append(running)
                self._feed_prefix(running)
        return started

    def newly_settled(self) -> Iterator[tuple[Running, tuple[int, ...]]]:
        """Those that want to be told every token, and which are settled by the last step."""
        if not self._streaming:
            return
        for running, token in zip(self._owners, self._greedy.fed.tolist(), strict=True):
            if running.request.stream and running.greedy:
                yield running, (token,)
        for running in self._searching:
            if running.request.stream and (new := running.newly_settled()):
                yield running, new

    def clear(self) -> None:
        """Nobody runs any more."""
        self.running = {}

    def _advance_searches(self, found: Found) -> list[tuple[Running, Advance]]:
        """What each search wants of the next step."""
        token_ids, log_probs = found.token_ids.tolist(), found.log_probs.tolist()
        advances = []
        for running in self._searching:
            rows = running.rows
            seen = Seen([token_ids[row] for row in rows], [log_probs[row] for row in rows], found, rows)
            advances.append((running, running.advance(seen)))
        return advances

    def _keep(self, leaving: Collection[Running], advances: Sequence[tuple[Running, Advance]]) -> None:
        """Makes the rows what is left of them: searches advance, other rows stay, and some requests leave."""
        staying = [row for row, one in enumerate(self._owners) if one.search is None and one not in leaving]
        parents = staying + [one.rows[parent] for one, advance in advances for parent in advance.parents]
        rows = place(parents)
        self._take(parents, rows)
        start = len(staying)
        self._greedy.fed[rows[start:]] = [token for _, advance in advances for token in advance.tokens]
        for running, advance in advances:
            self.tokens -= running.tokens(self.steps)
            running.rows = rows[start : start + len(advance.parents)]
            self.tokens += running.tokens(self.steps)
            start += len(advance.parents)
        for running in leaving:
            del self.running[running]
            self.tokens -= running.tokens(self.steps)
            self._streaming -= running.request.stream
        self._searching = [running for running, _ in advances]

    def _take(self, parents: Sequence[int], rows: Sequence[int]) -> None:
        """Moves the rows: old row parents[i] continues in rows[i]."""
        taken = [0] * len(rows)
        for parent, row in zip(parents, rows, strict=True):
            taken[row] = parent
        self._owners = [self._owners[parent] for parent in taken]
        self._greedy.take(taken)
        moved_bytes = self._cache.take(taken)
        moved = sum(parent != row for row, parent in enumerate(taken))
        if moved:
            self._told.moved(moved, moved_bytes)

    def _feed_prefix(self, running: Running) -> None:
        """Its row is fed the next token of its prefix. With the last one its search begins."""
        request, row, step = running.request, self._owners.index(running), running.steps(self.steps)
        prefix = request.rules.prefix_ids
        self._greedy.fed[row] = prefix[step]
        if step + 1 < len(prefix):
            return
        if is_greedy(request.decoding):
            running.greedy = True
            self._greedy.search(row, request.decoding, request.rules)
        else:
            running.begin(open_search(request.decoding, request.rules), row)
            self._searching.append(running)
