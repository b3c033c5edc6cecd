"""A list of requests instead of an engine."""

import threading
from dataclasses import dataclass, field

from engine.queueing.cost import Work
from engine.request import (
    Event,
    Finished,
    FinishReason,
    Hypothesis,
    Request,
    Timings,
)
from models.decoding import Options
from server.translation.options import Route
from tests.serving import eventually

ROUTE = Route(target_language="pt")
OPTIONS = Options()
TIMINGS = Timings(0.001, 0.002, 0.003, 4)


@dataclass
class Engine:
    """Takes requests, and answers when a test says so, on a thread of its own as an engine does."""

    requests: list[Request] = field(default_factory=list)
    waiting: int = 0
    idle: bool = False
    finishes_in_s: float = 0.0

    def submit(self, request: Request) -> None:
        """Takes one."""
        self.requests.append(request)

    def waiting_of(self, caller: str) -> int:
        """Nobody's."""
        return 0

    def finish_s(self, work: Work, reserved: float) -> float:
        """In how many seconds work would be done that came now."""
        return self.finishes_in_s

    def cost_of(self, work: Work) -> float:
        """Seconds of a worker that work takes."""
        return 0.01 * work.contents

    async def submitted(self, count: int) -> list[Request]:
        await eventually(lambda: len(self.requests) == count)
        return self.requests


def deliver(request: Request, *events: Event) -> None:
    """Delivers from another thread."""

    def work() -> None:
        for event in events:
            request.deliver(event)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def copy(request: Request) -> Finished:
    """The source as its translation."""
    return Finished((Hypothesis(request.source_ids, -0.5, FinishReason.END_TOKEN),), TIMINGS)
