"""The rows of a running batch: whose each is, what it is fed next, and how it goes on after a step."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from operator import ne
from typing import Generic

import numpy as np

from engine.batch.placing import place
from engine.batch.running import Running
from engine.decoder import EACH_BEST, Ask, Cache, FollowingCache, Found, Outlook, S
from engine.devices.session import Device
from engine.observer import WorkerObserver
from engine.processors.processed import Processed
from engine.processors.stage import ProcessorStage
from engine.request import Hypothesis
from engine.search.beam_rows import BeamRows
from engine.search.greedy import GreedyRows
from kernels.steps import NEVER_MIND, Arrivals


class SearchedRows(Generic[S]):
    """Rows 0..live-1 of a cache.

    A request holds as many of them as its search has hypotheses, anywhere among the others. Greedy search is one search
    for all its rows, and so is beam search.
    """

    def __init__(self, cache: Cache[S], rows: int, told: WorkerObserver, device: Device) -> None:
        """device: of the cache."""
        self._cache, self._told = cache, told
        self._following = cache if isinstance(cache, FollowingCache) else None
        self._moves = not device.has_slots
        """What a row of the cache has is moved with it, so as few as can be are."""
        self._foretells = device.steps_ahead
        """Somebody wants to know how beams will go on."""
        self.running: dict[Running, None] = {}
        """Whoever holds rows."""
        self._owners: list[Running] = []
        """Whose each row is [live]."""
        self._greedy, self._beams = GreedyRows(rows), BeamRows()
        self._in_beams: dict[int, Running] = {}
        """Those with a beam search, by its number."""
        self._stage = ProcessorStage(rows)
        self._processing = False
        """Some request has processors."""
        self._searches_ask = self._greedy.ask, self._beams.ask
        self._ask = self._of_searches = Ask()
        """What must be seen of the rows, and what of it for searches alone."""
        self._starting: list[Running] = []
        """Those that have no token yet."""
        self._streaming = 0
        """How many want to be told every token."""
        self.unseen = False
        """Nobody need see the step that was begun, if all searches simply go on: nobody is told of every token."""
        self._ordered = False
        """The rows are those of beam searches, by search and best first, where they may be anywhere."""
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
        self._stage.start(self._cache.join(source))
        self._greedy.join()
        self._owners.append(running)
        self._ordered = False
        self.running[running] = None
        self._starting.append(running)
        self._streaming += running.streams
        request = running.request
        if processed := Processed.of(request.decoding, request.rules, request.source_ids, running.sample):
            running.processed = processed
            self._stage.begin(processed)
            self._processing = True
        self.tokens += len(running.request.source_ids)
        self._feed_prefix(running)

    def begin_step(self) -> None:
        """Starts a step of all rows."""
        alone = not (self._processing or self._starting)
        self.unseen = alone and not self._streaming
        if self._in_beams or not alone:
            self._prepare()
        self._cache.begin_step(self._greedy.fed, self._ask)

    def end_step(self) -> Found:
        """Waits for it."""
        found = self._cache.end_step()
        if self._processing:
            return self._stage.process(found, [one.processing for one in self._owners])
        return found

    def _prepare(self) -> None:
        """What a step needs that has not greedy rows alone. When it has, the ask has been put together anew."""
        if self._processing:
            self._stage.feed(self._greedy.fed)
        outlook = self._outlook()
        if outlook is not self._ask.outlook:
            self._ask = replace(self._ask, outlook=outlook)

    def _outlook(self) -> Outlook | None:
        """How the rows will go on, if that can be told. A row that has joined is behind the beams for a step."""
        if self._processing or (self._in_beams and (self._starting or not self._foretells)):
            return None
        if any(one.number is None and not one.greedy for one in self._starting):  # fed their prefixes
            return None
        return self._beams.outlook if self._in_beams else EACH_BEST

    def end_steps(self, most: int, called: Callable[[], bool], arrivals: Arrivals | None) -> tuple[Found, int]:
        """Waits for it. Makes up to `most` steps of those that nobody need see, unless somebody calls.

        arrivals: of those who may call, for steps that are made without the interpreter. None: nobody may.
        Returns what the last one found, and how many were made.
        """
        made = 0
        while True:
            found, steps = self._follow(most - made, called, arrivals) or (self._append(), 1)
            made += steps
            if self._greedy.unsettled or self._beams.unsettled or made >= most or called():
                break
            if self._in_beams:
                self._keep(())
            self._cache.begin_step(self._greedy.fed, self._ask)
        self.steps += made
        self.tokens += made * self.live
        return found, made

    def _follow(self, most: int, called: Callable[[], bool], arrivals: Arrivals | None) -> tuple[Found, int] | None:
        """Ends the step, and makes others, if all rows are of one search and the cache can."""
        if self._following is None or self._processing:
            return None
        search = self._greedy if not self._in_beams else self._beams if self._ordered and self._beams.orderly else None
        if search is None:
            return None
        so_far = NEVER_MIND
        if most > 1 and arrivals is not None:
            so_far = arrivals.so_far()
            most = 1 if called() else most
        followed = self._following.follow(search, most, so_far)
        if followed is None:
            return None
        if followed.moved_bytes:
            self._told.moved(followed.moved_rows, followed.moved_bytes)
        return followed.found, followed.steps

    def _append(self) -> Found:
        """Ends the step."""
        found = self.end_step()
        if len(self.running) > len(self._in_beams):
            self._greedy.append(found)
        if self._in_beams:
            self._beams.append(found)
        return found

    def advance(self, found: Found) -> dict[Running, tuple[Hypothesis, ...]]:
        """Sees to what is special in the last step, behind which the rows go on.

        Returns those whose search is over, and what it has found: nothing, if the model's numbers were not finite.
        """
        if not (self._greedy.unsettled or self._in_beams):
            return {}
        over = self._greedy.settle(found) if self._greedy.unsettled else []
        answers = {self._owners[row]: self._greedy.hypotheses(row) for row in over}
        if self._beams.unsettled:
            beams_over = self._beams.settle(found)
            answers |= {self._in_beams.pop(number): hypotheses for number, hypotheses in beams_over.items()}
        if answers or self._in_beams:
            self._keep(answers)
        return answers

    def drop(self, leaving: Collection[Running]) -> None:
        """They leave; the others stay as they are."""
        for running in leaving:
            if running.number is not None:
                self._beams.drop(running.number)
                del self._in_beams[running.number]
        self._beams.stay(self._greedy.fed)
        self._keep(leaving)
        self._starting = [running for running in self._starting if running in self.running]

    def start(self) -> list[Running]:
        """Feeds what is left of the prefixes. Returns those that have got their first token."""
        if not self._starting:
            return []
        starting, self._starting = self._starting, []
        started = []
        for running in starting:
            if running.steps(self.steps) >= len(running.request.rules.prefix_ids):
                started.append(running)
            else:
                self._starting.append(running)
                self._feed_prefix(running)
        return started

    def newly_settled(self) -> Iterable[tuple[Running, tuple[int, ...]]]:
        """Those that want to be told every token, and which are settled by the last step."""
        return self._settled_of_streams() if self._streaming else ()

    def _settled_of_streams(self) -> Iterator[tuple[Running, tuple[int, ...]]]:
        for running, token in zip(self._owners, self._greedy.fed.tolist(), strict=True):
            if running.streams and running.greedy:
                yield running, (token,)
        for number, running in self._in_beams.items():
            if running.streams and (new := self._beams.settled(number)[running.streamed :]):
                running.streamed += len(new)
                yield running, new

    def clear(self) -> None:
        """Nobody runs any more."""
        self.running = {}

    def _keep(self, leaving: Collection[Running]) -> None:
        """Makes the rows what is left of them: beams go on, other rows stay, and some requests leave."""
        if self._ordered and not leaving and not self._beams.resized:
            self._reorder()
            return
        if self._in_beams:
            self._arrange(leaving)
        else:
            self._close_up(leaving)
        for running in leaving:
            del self.running[running]
            self.tokens -= running.tokens(self.steps)
            self._streaming -= running.streams
            if running.processed is not None:
                self._stage.end(running.processed)
                self._processing = not self._stage.idle
        if leaving:
            self._update_ask()

    def _close_up(self, leaving: Collection[Running]) -> None:
        """The last rows take the places of those that leave: there is no beam, and most others need not be touched."""
        left = [row for row, one in enumerate(self._owners) if one in leaving]
        live = self.live - len(left)
        last = [row for row in range(live, self.live) if row not in left]
        sources, moves = [*range(live)], [*zip(last, left, strict=False)]  # those that leave and were last leave no gap
        for parent, row in moves:
            sources[row], self._owners[row] = parent, self._owners[parent]
        del self._owners[live:]
        self._ordered = False
        self._greedy.close_up(moves, live)
        self._stage.take(sources)
        if copied_bytes := self._cache.take(sources):
            self._told.moved(len(moves), copied_bytes)

    def _arrange(self, leaving: Collection[Running]) -> None:
        """As the beams want it. Other rows come before them."""
        kept = list[int]()
        if len(self.running) > len(self._in_beams):
            kept = [row for row, one in enumerate(self._owners) if one.number is None and one not in leaving]
        parents = kept + self._beams.parents.tolist()
        rows = self._placed(parents, len(kept))
        self._ordered = not (self._moves or kept)
        self._greedy.take(kept, rows[: len(kept)], len(rows))
        if len(kept) < len(rows):
            of_beams = np.array(rows[len(kept) :])
            self._greedy.fed[of_beams] = self._beams.tokens
            self._beams.place(of_beams)
        self._take(parents, rows)
        for number, live in self._beams.resized.items():
            running = self._in_beams[number]
            self.tokens -= running.tokens(self.steps)
            running.hold(live, self.steps)
            self.tokens += running.tokens(self.steps)

    def _reorder(self) -> None:
        """The same beam searches have as many hypotheses as before."""
        parents = self._beams.parents
        self._greedy.fed[:] = self._beams.tokens
        if self._processing:
            self._stage.take(parents.tolist())
        if copied_bytes := self._cache.take(parents):
            self._told.moved(len(parents) - len({*parents.tolist()}), copied_bytes)

    def _placed(self, parents: list[int], others: int) -> list[int]:
        """Which row each takes. parents: those that beams continue come after so many others."""
        if self._moves:
            return place(parents)
        # The beams of a search beside each other: they read the same source.
        return [*place(parents[:others]), *range(others, len(parents))]

    def _take(self, parents: list[int], rows: list[int]) -> None:
        """Moves what the cache holds: old row parents[i] continues in rows[i]."""
        if parents == rows and len(rows) == self.live:
            return
        sources = [0] * len(rows)
        for parent, row in zip(parents, rows, strict=True):
            sources[row] = parent
        self._owners = [self._owners[source] for source in sources]
        self._stage.take(sources)
        copied_bytes = self._cache.take(sources)
        if copied_bytes:
            moved = sum(map(ne, parents, rows)) if self._moves else len(sources) - len({*sources})
            self._told.moved(moved, copied_bytes)

    def _feed_prefix(self, running: Running) -> None:
        """Its row is fed the next token of its prefix. With the last one its search begins."""
        request, step = running.request, running.steps(self.steps)
        row = self.live - 1 if self._owners[-1] is running else self._owners.index(running)
        prefix = request.rules.prefix_ids
        self._greedy.fed[row] = prefix[step]
        if step + 1 < len(prefix):
            return
        if request.decoding.num_beams == 1:
            running.greedy = True
            rank = running.sample if request.decoding.return_alternatives else 0
            self._greedy.search(row, request.decoding, request.rules, rank)
        else:
            running.number, running.since = self._beams.search(row, request.decoding, request.rules), self.steps
            self._in_beams[running.number] = running
        self._update_ask()

    def _update_ask(self) -> None:
        searches = self._greedy.ask, self._beams.ask
        if searches != self._searches_ask:
            self._searches_ask, self._of_searches = searches, Ask.of_all(searches)
        self._ask = self._stage.ask(self._of_searches)
