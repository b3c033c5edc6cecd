"""What makes an engine fail, and what is seen of it."""

from collections.abc import Callable, Sequence

from engine.runner import Runner
from engine.supervision.policy import Supervision
from tests.engine.calling import END, Call, Service

Sources = Sequence[tuple[int, ...]]

SUPERVISED = Supervision(restarts=8)
UNWATCHED = Supervision(restarts=8, watched=False)
"""Who hangs is noticed when a test says so, by `look_after`: a machine may be as slow as one that hangs."""
POISON = (666, 5, END)


def once(error: Exception) -> Callable[[Sources], None]:
    """One step fails."""
    left = [error]

    def fault(sources: Sources) -> None:
        if left:
            raise left.pop()

    return fault


def poisoned(sources: Sources) -> None:
    if POISON in sources:
        raise RuntimeError("broken")


def together(service: Service, calls: Sequence[Call], fault: Callable[[Sources], None] | None = None) -> None:
    """Has all of them on board of one worker when the fault begins."""
    service.submit(calls[0])
    service.gate.wait_until_held()
    service.submit(*calls[1:])
    service.gate.let(1)
    service.gate.wait_until_held()
    service.decoder.fault = fault
    service.gate.open()


def look_after(runner: Runner) -> None:
    """Somebody does so now, and again when the turns that last have taken an hour."""
    for elapsed_s in (0.0, 3600.0):
        runner._supervisor.look(elapsed_s)


def restarts(service: Service) -> dict[str, float]:
    return {
        cause: count
        for cause in ("crash", "hang", "memory")
        if (count := service.sample("dragoman_engine_restarts_total", cause=cause))
    }
