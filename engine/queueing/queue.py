"""Where requests wait for a row, and who comes next: each caller its share of the work."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from math import ceil, floor, inf
from typing import NamedTuple, Protocol

from engine.queueing.cost import CostModel
from engine.queueing.express import EXPRESS_ROWS, EXPRESS_TOKENS, Occupancy, may_go, places
from engine.queueing.flow import BULK_WEIGHT, INTERACTIVE_WEIGHT, Flow
from engine.request import Request

MAX_JOINING = 32
"""Most requests that join a running batch between two steps: its rows wait while their sources are encoded."""
JOINING_TOKENS = 2048
"""Most source tokens of those that join together, but that one may always join: the memory of an encoder run grows with
them, and sources of equal length are encoded together. Thirty-two sources of 512 tokens took a gigabyte."""
BUSY_TOKENS = 512
"""The same beside rows that run: they wait for it."""
DEVICE_JOINING = 128
"""Most requests where a device encodes, running or not: it is told kernel by kernel what to do, which takes as long for
few sources as for many."""
ENCODE_TOKENS = 256
"""The same of those that want no row: together they are no faster, and whoever comes meanwhile waits for them."""
QUANTUM_S = 0.01
"""Seconds of a worker that a flow of weight 1 gets in a round."""
MOST_FLOWS = 4096
"""Flows that may be remembered for what they owe."""
KEPT_SHARE = 4
"""A beam search may not take the last quarter of a worker's rows beside another of its caller: beams may go on for as
long as the model has positions, and nobody else would find a row."""

CROWD_S = 2.0
"""So long after another caller's last request, a caller has a crowd to think of."""
CROWD_SLOWDOWN = 3.0
"""In a crowd, a caller's rows make no step longer than so many of one row, but for one request: every row of a batch
waits for all others, so the rows of one caller are the latency of the next."""
EMBEDDER = 0
"""The one worker that encodes, in a crowd, for those that want no row: a long text cannot be encoded by parts, and
rows beside it would wait. It has rows only where no other worker has room."""

SURE = 0.8
"""Share of the time left that a request may be expected to take where it joins others: some take longer."""


class Queue(Protocol):
    """Requests that wait. Not safe for threads by itself: `engine.runner.Runner` holds a lock around every call."""

    def __len__(self) -> int: ...

    @property
    def choosy(self) -> bool:
        """What waits may not be for any worker: all of them must look."""
        ...

    def may_go_express(self, request: Request) -> bool:
        """Whether the express worker must look at once, beside one of the others."""
        ...

    def hindered(self, caller: str, free_rows: Sequence[int], now: float) -> bool:
        """Whether a caller who has no row finds only workers that are another one's. free_rows: as for `share`."""
        ...

    def length_of(self, caller: str) -> int:
        """Requests of a caller."""
        ...

    def put(self, request: Request) -> None:
        """A request has come."""
        ...

    def discard(self, request: Request) -> bool:
        """Takes a request out, wherever it stands. False: it is not here."""
        ...

    def requests(self) -> list[Request]:
        """All that wait."""
        ...

    def clear(self) -> list[Request]:
        """Takes all requests out."""
        ...

    def share(
        self,
        worker: int,
        free_rows: Sequence[int],
        used: int,
        now: float,
        tokens: int = JOINING_TOKENS,
        requests: int = MAX_JOINING,
    ) -> "Share":
        """Takes out what this worker is to admit now, at most `free_rows[worker]` rows of it, and what is too late.

        free_rows: of every worker, the express one last, if there is one. used: rows of this one that others hold. now:
        by time.perf_counter. tokens: most source tokens together; a longer source comes alone, unless that is 0.
        requests: most of them
        """
        ...

    def ended(self, request: Request, worker: int, cost: float) -> None:
        """A request that this worker has admitted gave its rows back, after so many seconds of a worker."""
        ...

    def restarted(self, worker: int) -> None:
        """This worker begins anew: nobody holds rows of it."""
        ...

    def ahead(self, caller: str, bulk: bool, cost: float) -> float:
        """Seconds of a worker that come before the end of work that costs so many and would come now."""
        ...


class Share(NamedTuple):
    """What leaves the queue."""

    joining: list[Request]
    late: dict[Request, float]
    """They cannot be answered by their deadline any more. How many seconds each may well take."""
    express: bool = False
    """The express worker is to look for somebody who waits."""


class FairQueue:
    """Deficit round robin (Shreedhar and Varghese 1995) over what requests cost.

    A request that needs more rows than are free waits, and those behind it wait too, so that wide beams are not starved
    by narrow ones. What a request has cost more or less than expected is settled with its flow when it ends.
    """

    def __init__(self, cost: CostModel) -> None:
        self._cost = cost
        self._flows: dict[tuple[str, bool], Flow] = {}
        self._round: deque[Flow] = deque()
        """Flows that have requests, the one whose turn it is first."""
        self._length = self._rows = self._embeddings = 0
        self._occupancy = Occupancy(cost.rows)
        self._arrivals = count()
        self._latest_starts: list[tuple[float, int, Request]] = []
        """A heap of when requests must have begun. Some of them may have left."""
        self._newest = self._newest_other = ("", -inf)
        """Who has come last and when, and the same of all others."""

    def __len__(self) -> int:
        return self._length

    @property
    def choosy(self) -> bool:
        return self._embeddings > 0

    def may_go_express(self, request: Request) -> bool:
        return self._occupancy.may_hinder(request.caller) and may_go(request, EXPRESS_ROWS)

    def hindered(self, caller: str, free_rows: Sequence[int], now: float) -> bool:
        if not self._occupancy.may_hinder(caller):
            return False
        workers = len(self._cost.workers)
        first = EMBEDDER + 1 if workers > 1 and self._encodes_apart(now) else 0
        return all(one in self._occupancy.owners for one in range(first, workers) if free_rows[one])

    def length_of(self, caller: str) -> int:
        flows = (self._flows.get((caller, bulk)) for bulk in (False, True))
        return sum(len(flow.requests) for flow in flows if flow is not None)

    def put(self, request: Request) -> None:
        flow = self._flow(request) or self._open_flow(request)
        if not flow.requests:
            self._round.append(flow)
        if request.caller != self._newest[0]:
            self._newest_other = self._newest
        self._newest = (request.caller, request.arrived)
        request.cost = self._cost.of(request)
        flow.requests[request] = None
        flow.backlog += request.cost
        self._length += 1
        self._rows += request.rows
        self._embeddings += not request.rows
        self._note_deadline(request)

    def discard(self, request: Request) -> bool:
        flow = self._flow(request)
        if flow is None or request not in flow.requests:
            return False
        self._take_out(flow, request)
        return True

    def requests(self) -> list[Request]:
        return [request for flow in self._round for request in flow.requests]

    def clear(self) -> list[Request]:
        requests = self.requests()
        self._flows, self._length, self._rows, self._embeddings = {}, 0, 0, 0
        self._round.clear()
        self._latest_starts.clear()
        return requests

    def _late(self, now: float) -> dict[Request, float]:
        """Takes out those that could not be answered by their deadline even if they were alone."""
        late = dict[Request, float]()
        while self._latest_starts and self._latest_starts[0][0] < now:
            request = heappop(self._latest_starts)[-1]
            if self._latest_start(request) >= now:  # somebody else waits for it too, and for longer
                self._note_deadline(request)
            elif self.discard(request):
                late[request] = self._cost.least_s(request)
        return late

    def share(
        self,
        worker: int,
        free_rows: Sequence[int],
        used: int,
        now: float,
        tokens: int = JOINING_TOKENS,
        requests: int = MAX_JOINING,
    ) -> Share:
        """As many as leave each worker equally many free rows, and make nobody late.

        A worker that took all that fits would leave the others idle. But the one with the most free rows takes what
        fits nowhere else. The express worker takes nobody but those whom another caller is in the way of.
        """
        taken, late = list[Request](), self._late(now)
        workers, express = free_rows[: len(self._cost.workers)], self._express(free_rows, now)
        if worker == len(workers):
            return self._share_express(express if tokens else [], worker, used, now, late)
        rows, takers, encodes, elsewhere = workers[worker], workers, True, 0
        if not (tokens and (rows or self._embeddings)):
            return Share(taken, late, bool(express))
        if len(workers) > 1 and self._encodes_apart(now):
            takers, encodes = workers[EMBEDDER + 1 :], worker == EMBEDDER
            elsewhere = max(takers) if encodes else 0
        even, most, joining = (sum(takers) - self._rows) // len(takers), max(takers), 0
        while len(taken) < requests:
            able = {flow for flow in self._round if (flow.head.rows > elsewhere if flow.head.rows else encodes)}
            able = {flow for flow in able.difference(express) if self._may_join(flow, worker, rows, now)}
            if (flow := self._next(able)) is None:
                break
            request = flow.head
            left = rows - request.rows
            together = joining + len(request.source_ids)
            if left < 0 or (left < even and rows < most) or (taken and together > tokens):
                break
            if taken and not request.rows and (taken[0].rows or together > ENCODE_TOKENS):
                break
            if needed_s := self._too_late(request, worker, used, now):
                self._take_out(flow, request)
                late[request] = needed_s
                continue
            taken.append(request)
            used, joining = used + request.rows, together
            rows = floor(min(left, max(0.0, request.most_rows - used))) if request.rows else left
            flow.deficit -= request.cost
            self._occupancy.hold(worker, flow.caller, request.rows)
            flow.hold(worker, request.rows)
            self._take_out(flow, request)
        return Share(taken, late, bool(express))

    def _share_express(self, able: list[Flow], worker: int, used: int, now: float, late: dict[Request, float]) -> Share:
        """The next request of each of these. It costs no flow anything: nobody waits at a queue for these rows."""
        taken, joining = list[Request](), 0
        for flow in able:
            request = flow.head
            joining += len(request.source_ids)
            if taken and joining > EXPRESS_TOKENS:
                break
            if needed_s := self._too_late(request, worker, used, now):
                late[request] = needed_s
            else:
                taken.append(request)
                used += request.rows
                flow.hold(worker, request.rows)
            self._take_out(flow, request)
        return Share(taken, late)

    def ended(self, request: Request, worker: int, cost: float) -> None:
        flow, express = self._flow(request), worker == len(self._cost.workers)
        if not express:
            self._occupancy.hold(worker, request.caller, -request.rows)
        if flow is None and (express or cost <= request.cost or not self._length):
            return
        flow = flow or self._open_flow(request)
        flow.hold(worker, -request.rows)
        if not express:
            flow.deficit += request.cost - cost
        self._forget(flow, request)

    def restarted(self, worker: int) -> None:
        for flow in self._flows.values():
            flow.held.pop(worker, None)
            flow.beams.pop(worker, None)
        self._occupancy.restarted(worker)

    def ahead(self, caller: str, bulk: bool, cost: float) -> float:
        """Its own flow's work, and what the others get while that is done."""
        flow = self._flows.get((caller, bulk))
        weight = BULK_WEIGHT if bulk else INTERACTIVE_WEIGHT
        own = cost if flow is None else cost + flow.backlog - min(flow.deficit, 0.0)
        others = (one for one in self._round if one is not flow)
        return own + sum(min(one.backlog, own * one.weight / weight) for one in others)

    def _flow(self, request: Request) -> Flow | None:
        return self._flows.get((request.caller, request.bulk))

    def _express(self, free_rows: Sequence[int], now: float) -> list[Flow]:
        """Those whose next requests are the express worker's, as many as it has rows for."""
        if len(free_rows) == len(self._cost.workers) or not self._occupancy.owners:
            return []
        flows, rows = list[Flow](), free_rows[-1]
        for flow in self._round:
            if may_go(flow.head, rows) and self.hindered(flow.caller, free_rows, now):
                flows.append(flow)
                rows -= places(flow.head.rows)
        return flows

    def _too_late(self, request: Request, worker: int, used: int, now: float) -> float:
        """Seconds it may well take beside rows that others hold, if that is too long. Finds in how many it is not."""
        if request.deadline is None:
            return 0.0
        request.most_rows = self._cost.most_rows(worker, request, SURE * (request.deadline - now))
        late = used and used + request.rows > request.most_rows
        return self._cost.beside_s(worker, request, used) / SURE if late else 0.0

    def _next(self, able: set[Flow]) -> Flow | None:
        """Of flows that may go on, the one whose turn it is, and which can pay for its next request. None: none may."""
        if not able:
            return None
        while True:
            for _ in range(len(self._round)):
                flow = self._round[0]
                if flow in able:
                    if not flow.its_turn:
                        flow.its_turn = True
                        flow.deficit += QUANTUM_S * flow.weight
                    if flow.deficit >= flow.head.cost:
                        return flow
                self._pass_on()
            rounds = min(ceil((flow.head.cost - flow.deficit) / (QUANTUM_S * flow.weight)) for flow in able) - 1
            for flow in able:  # nobody can pay: the rounds in which nobody can are made at once
                flow.deficit += max(0, rounds) * QUANTUM_S * flow.weight

    def _may_join(self, flow: Flow, worker: int, rows: int, now: float) -> bool:
        """Whether its next request leaves others the rows, and the time of a step, that one caller may not take."""
        needed, held = flow.head.rows, flow.held.get(worker, 0)
        if not needed or not held:
            return True
        if needed > 1 and flow.beams.get(worker) and rows - needed < self._cost.rows // KEPT_SHARE:
            return False
        step_s = self._cost.workers[worker].step_s
        return not self._crowded(flow, now) or step_s(held + needed) <= CROWD_SLOWDOWN * step_s(1)

    def _encodes_apart(self, now: float) -> bool:
        """Whether one worker alone is to encode for those who want no row."""
        return self._embeddings > 0 and any(self._crowded(flow, now) for flow in self._round if not flow.head.rows)

    def _crowded(self, flow: Flow, now: float) -> bool:
        """Whether somebody else has come of late."""
        other = self._newest_other if self._newest[0] == flow.caller else self._newest
        return now - other[1] < CROWD_S

    def _pass_on(self) -> None:
        self._round[0].its_turn = False
        self._round.rotate(-1)

    def _take_out(self, flow: Flow, request: Request) -> None:
        del flow.requests[request]
        flow.backlog -= request.cost
        self._length -= 1
        self._rows -= request.rows
        self._embeddings -= not request.rows
        if not flow.requests:
            self._round.remove(flow)
            flow.its_turn, flow.backlog, flow.deficit = False, 0.0, min(flow.deficit, 0.0)
            self._forget(flow, request)
        if not self._length:  # nobody waits for what others had too much of
            self._latest_starts.clear()
            self._flows = {key: one for key, one in self._flows.items() if any(one.held.values())}
            for one in self._flows.values():
                one.deficit = 0.0

    def _latest_start(self, request: Request) -> float:
        """When it must have begun, by time.perf_counter."""
        return inf if request.deadline is None else request.deadline - self._cost.least_s(request)

    def _note_deadline(self, request: Request) -> None:
        if request.deadline is not None:
            heappush(self._latest_starts, (self._latest_start(request), next(self._arrivals), request))

    def _open_flow(self, request: Request) -> Flow:
        """A new one for a request. What was owed is forgotten where too many owe."""
        if len(self._flows) >= MOST_FLOWS:
            self._flows = {key: one for key, one in self._flows.items() if one.requests or any(one.held.values())}
        flow = self._flows[request.caller, request.bulk] = Flow(request.caller, request.bulk)
        return flow

    def _forget(self, flow: Flow, request: Request) -> None:
        """Forgets a flow that has nothing, holds nothing and owes nothing."""
        if not flow.requests and not any(flow.held.values()) and flow.deficit >= 0.0:
            self._flows.pop((request.caller, request.bulk), None)
