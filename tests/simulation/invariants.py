"""What must hold of an engine and its admission after every event, whatever comes and whatever fails."""

from collections.abc import Iterable
from math import inf
from typing import Any

from engine.batch.running_batch import RunningBatch
from engine.queueing.queue import FairQueue
from engine.request import Request, Tokens
from engine.runner import Runner
from engine.supervision.worker import Worker
from server.admission.permits import Admission
from tests.simulation.machine import stuck_turn

NOTHING_S = 1e-9
"""What is left of seconds that were added and taken away again."""


def check(runner: Runner, admission: Admission, waiting: Iterable[Request]) -> None:
    """Raises AssertionError. waiting: those that somebody waits for."""
    queue, supervisor = runner._queue, runner._supervisor
    assert isinstance(queue, FairQueue)
    assert not admission._reserved and abs(admission._reserved_cost) < NOTHING_S, "a permit was not given back"
    restarts = len(supervisor._restarts)
    assert restarts <= supervisor._policy.restarts, f"{restarts} restarts, where there are to be no more"
    _check_queue(queue)
    if runner.failure.done():
        assert not len(queue), "requests wait for an engine that is given up"
    for worker in supervisor.workers:
        if not worker.leaving and stuck_turn(worker) is None:
            _check_rows(worker.batch)
            if not (worker.trying or runner.failure.done()):  # what is tried again was not taken from the queue
                _check_holders(queue, worker)
    _check_places(queue, supervisor.workers, waiting)


def _check_queue(queue: FairQueue) -> None:
    """It knows what it has, and has nothing that nobody waits for."""
    queued = queue.requests()
    assert (queue._length, queue._rows) == (len(queued), sum(request.rows for request in queued)), "the queue errs"
    for flow in queue._flows.values():
        cost = sum(request.cost for request in flow.requests)
        assert abs(flow.backlog - cost) < NOTHING_S, f"{flow.backlog} s wait of one flow, which are {cost} s"
    assert not any(request.cancelled for request in queued), "a request waits that nobody waits for"


def _check_rows(batch: RunningBatch[Any]) -> None:
    """Rows are neither lost nor made, and whoever has some is not forgotten."""
    leaving = {id(one) for one, event in batch.answers.said if not isinstance(event, Tokens)}
    held = sum(request.rows for request in batch.answers.held if id(request) not in leaving)
    assert batch.free_rows >= 0, f"{-batch.free_rows} rows more than there are"
    assert batch.free_rows + held == batch.rows, f"{batch.free_rows} rows free, {held} held"
    first = min((running.request.deadline or inf for running in batch._rows.running), default=inf)
    assert batch._earliest <= first, "a deadline of one that runs is not looked at"


def _check_holders(queue: FairQueue, worker: Worker) -> None:
    """The queue knows who holds the rows of a worker."""
    used, held = worker.used_rows, sum(flow.held.get(worker.number, 0) for flow in queue._flows.values())
    assert held == used, f"flows hold {held} rows of worker {worker.number}, which are {used}"
    if worker.number < len(queue._cost.workers):
        held = sum(queue._occupancy._held.get(worker.number, {}).values())
        assert held == used, f"callers hold {held} rows of worker {worker.number}, which are {used}"


def _check_places(queue: FairQueue, workers: Iterable[Worker], waiting: Iterable[Request]) -> None:
    """Each request that is not answered is somewhere, and none before another of its flow that came sooner."""
    taken = [one for worker in workers for one in (*worker.batch.answers.held, *worker.suspects.requests)]
    found = {id(request) for request in (*queue.requests(), *taken)}
    assert all(id(request) in found for request in waiting), "a request is lost"
    for request in taken:
        flow = queue._flows.get((request.caller, request.bulk))
        first = request.arrived if flow is None or not flow.requests else flow.head.arrived
        assert first >= request.arrived, "a request has overtaken one of its own caller"
