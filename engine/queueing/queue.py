"""Where requests wait for a row, and who comes next: each caller its share of the work."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from math import ceil, floor, inf
from typing import NamedTuple, Protocol

from engine.queueing.cost import CostModel
from engine.request import Request

MAX_JOINING = 32
"""Most requests that join a running batch between two steps: its rows wait while their sources are encoded."""
JOINING_TOKENS = 2048
"""Most source tokens of those that join together, but that one may always join: the memory of an encoder run grows with
them, and sources of equal length are encoded together. Thirty-two sources of 512 tokens took a gigabyte."""
BUSY_TOKENS = 512
"""The same beside rows that run: they wait for it."""
QUANTUM_S = 0.01
"""Seconds of a worker that a flow of weight 1 gets in a round."""
INTERACTIVE_WEIGHT, BULK_WEIGHT = 4.0, 1.0
"""What a caller's urgent requests get of the work for what its other ones get."""
MOST_FLOWS = 4096
"""Flows that may be remembered for what they owe."""
KEPT_SHARE = 4
"""A beam search may not take the last quarter of a worker's rows beside another of its caller: beams may go on for as
long as the model has positions, and nobody else would find a row."""

SURE = 0.8
"""Share of the time left that a request may be expected to take where it joins others: some take longer."""


class Queue(Protocol):
    """Requests that wait. Not safe for threads by itself: `engine.runner.Runner` holds a lock around every call."""

    def __len__(self) -> int: ...

    def length_of(self, caller: str) -> int:
        """Requests of a caller."""
        ...

    def put(self, request: Request) -> None:
        """A request has come."""
        ...

    def discard(self, request: Request) -> bool:
        """Takes a request out, wherever it stands. False: it is not here."""
        ...

    def clear(self) -> list[Request]:
        """Takes all requests out."""
        ...

    def share(
        self, worker: int, free_rows: Sequence[int], used: int, now: float, tokens: int = JOINING_TOKENS
    ) -> "Share":
        """Takes out what this worker is to admit now, at most `free_rows[worker]` rows of it, and what is too late.

        free_rows: of every worker. used: rows of this one that others hold. now: by time.perf_counter. tokens: most
        source tokens together; a longer source comes alone, unless that is 0
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
    late: list[Request]
    """They cannot be answered by their deadline any more."""


class Flow:
    """What waits of one caller and class, first come, first served."""

    def __init__(self, bulk: bool) -> None:
        self.weight = BULK_WEIGHT if bulk else INTERACTIVE_WEIGHT
        self.requests: OrderedDict[Request, None] = OrderedDict()
        self.backlog = 0.0
        """Seconds of a worker that its requests will cost."""
        self.deficit = 0.0
        """Seconds of a worker that it may spend. Below zero: it was given more than was expected."""
        self.its_turn = False
        """It has got its quantum in this round."""
        self.held: dict[int, int] = {}
        """Rows that its beam searches hold, of each worker."""

    @property
    def head(self) -> Request:
        """Its next request."""
        return next(iter(self.requests))


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
        self._length = self._rows = 0
        self._arrivals = count()
        self._latest_starts: list[tuple[float, int, Request]] = []
        """A heap of when requests must have begun. Some of them may have left."""

    def __len__(self) -> int:
        return self._length

    def length_of(self, caller: str) -> int:
        flows = (self._flows.get((caller, bulk)) for bulk in (False, True))
        return sum(len(flow.requests) for flow in flows if flow is not None)

    def put(self, request: Request) -> None:
        flow = self._flow(request) or self._open_flow(request)
        if not flow.requests:
            self._round.append(flow)
        request.cost = self._cost.of(request)
        flow.requests[request] = None
        flow.backlog += request.cost
        self._length += 1
        self._rows += request.rows
        self._note_deadline(request)

    def discard(self, request: Request) -> bool:
        flow = self._flow(request)
        if flow is None or request not in flow.requests:
            return False
        self._take_out(flow, request)
        return True

    def clear(self) -> list[Request]:
        requests = [request for flow in self._round for request in flow.requests]
        self._flows, self._length, self._rows = {}, 0, 0
        self._round.clear()
        self._latest_starts.clear()
        return requests

    def _late(self, now: float) -> list[Request]:
        """Takes out those that could not be answered by their deadline even if they were alone."""
        late = list[Request]()
        while self._latest_starts and self._latest_starts[0][0] < now:
            request = heappop(self._latest_starts)[-1]
            if self._latest_start(request) >= now:  # somebody else waits for it too, and for longer
                self._note_deadline(request)
            elif self.discard(request):
                late.append(request)
        return late

    def share(
        self, worker: int, free_rows: Sequence[int], used: int, now: float, tokens: int = JOINING_TOKENS
    ) -> Share:
        """As many as leave each worker equally many free rows, and make nobody late.

        A worker that took all that fits would leave the others idle. But the one with the most free rows takes what
        fits nowhere else.
        """
        taken, late = list[Request](), self._late(now)
        if not tokens:
            return Share(taken, late)
        even, most, rows = (sum(free_rows) - self._rows) // len(free_rows), max(free_rows), free_rows[worker]
        joining = 0
        while len(taken) < MAX_JOINING and (flow := self._next(worker, rows)) is not None:
            request = flow.head
            left = rows - request.rows
            together = joining + len(request.source_ids)
            if left < 0 or (left < even and rows < most) or (taken and together > tokens):
                break
            if request.deadline is not None:
                request.most_rows = self._cost.most_rows(worker, request, SURE * (request.deadline - now))
                if used and used + request.rows > request.most_rows:
                    self._take_out(flow, request)
                    late.append(request)
                    continue
            taken.append(request)
            used, joining = used + request.rows, together
            rows = floor(min(left, max(0.0, request.most_rows - used))) if request.rows else left
            flow.deficit -= request.cost
            if request.rows > 1:
                flow.held[worker] = flow.held.get(worker, 0) + request.rows
            self._take_out(flow, request)
        return Share(taken, late)

    def ended(self, request: Request, worker: int, cost: float) -> None:
        flow = self._flow(request)
        if flow is None and (cost <= request.cost or not self._length):
            return
        flow = flow or self._open_flow(request)
        if request.rows > 1:
            flow.held[worker] = max(0, flow.held.get(worker, 0) - request.rows)
        flow.deficit += request.cost - cost
        self._forget(flow, request)

    def restarted(self, worker: int) -> None:
        for flow in self._flows.values():
            flow.held.pop(worker, None)

    def ahead(self, caller: str, bulk: bool, cost: float) -> float:
        """Its own flow's work, and what the others get while that is done."""
        flow = self._flows.get((caller, bulk))
        weight = BULK_WEIGHT if bulk else INTERACTIVE_WEIGHT
        own = cost if flow is None else cost + flow.backlog - min(flow.deficit, 0.0)
        others = (one for one in self._round if one is not flow)
        return own + sum(min(one.backlog, own * one.weight / weight) for one in others)

    def _flow(self, request: Request) -> Flow | None:
        return self._flows.get((request.caller, request.bulk))

    def _next(self, worker: int, rows: int) -> Flow | None:
        """The flow whose turn it is, and which can pay for its next request. None: there is no such flow."""
        able = {flow for flow in self._round if self._may_join(flow, worker, rows)}
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

    def _may_join(self, flow: Flow, worker: int, rows: int) -> bool:
        """Whether its next request leaves others the rows that beams may not take."""
        needed = flow.head.rows
        return needed <= 1 or not flow.held.get(worker) or rows - needed >= self._cost.rows // KEPT_SHARE

    def _pass_on(self) -> None:
        self._round[0].its_turn = False
        self._round.rotate(-1)

    def _take_out(self, flow: Flow, request: Request) -> None:
        del flow.requests[request]
        flow.backlog -= request.cost
        self._length -= 1
        self._rows -= request.rows
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
        flow = self._flows[request.caller, request.bulk] = Flow(request.bulk)
        return flow

    def _forget(self, flow: Flow, request: Request) -> None:
        """Forgets a flow that has nothing, holds nothing and owes nothing."""
        if not flow.requests and not any(flow.held.values()) and flow.deficit >= 0.0:
            self._flows.pop((request.caller, request.bulk), None)
