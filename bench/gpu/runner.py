"""Runs each part in a process of its own, within its time.

A part that crashes, hangs, or leaves the device unusable takes nothing along: its process is killed, what it found
until then is kept, and the next part starts afresh. All are forked from one process that has imported torch.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Literal

from bench.gpu.plan import Findings, Part, Plan

EXIT_S = 5.0
"""For a part that is done, to end by itself."""
Status = Literal["done", "failed", "cut", "not run"]
IMPORTED = ("torch", "torch.onnx", "onnxscript")
"""Nothing that might touch CUDA or start threads when it is imported: neither survives a fork."""


@dataclass
class Outcome:
    """What became of a part."""

    status: Status = "not run"
    seconds: float = 0.0
    error: str | None = None
    findings: Findings = field(default_factory=dict)


class Interrupted(Exception):
    """SIGTERM or SIGINT came."""


class Runner:
    """Runs parts one after the other."""

    def __init__(self, plan: Plan, total_s: float, spared_s: float) -> None:
        """All parts together end after `total_s`. The last `spared_s` of it are not for parts that are `spare`."""
        self.plan = plan
        """What the next part gets."""
        self._spared_s = spared_s
        self._ends = time.monotonic() + total_s
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(IMPORTED))

    def run(self, part: Part, outcome: Outcome, written: Callable[[], None]) -> None:
        """Fills `outcome`, calling `written` after every finding. Raises Interrupted, `outcome` being filled so far."""
        started = time.monotonic()
        deadline = min(started + part.budget_s, self._ends - part.spare * self._spared_s)
        if deadline <= started:
            outcome.error = "no time was left"
            return
        plan = replace(self.plan, part_s=deadline - started)
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(part, plan, sender))
        process.start()
        sender.close()
        outcome.status, outcome.error = "cut", "interrupted"
        try:
            outcome.status, outcome.error = self._receive(receiver, deadline, outcome.findings, written)
            if outcome.status == "failed" and outcome.error is None:
                process.join()
                outcome.error = f"its process ended with exit code {process.exitcode}"
            if outcome.status != "cut":
                process.join(EXIT_S)
        finally:
            outcome.seconds = time.monotonic() - started
            _kill(process)
            written()

    def _receive(
        self, receiver: Connection, deadline: float, findings: Findings, written: Callable[[], None]
    ) -> tuple[Status, str | None]:
        """Collects findings until the part ends, or has no more time."""
        while receiver.poll(max(0.0, deadline - time.monotonic())):
            try:
                kind, *message = receiver.recv()
            except EOFError:
                return "failed", None
            if kind == "finding":
                name, value = message
                findings[name] = value
                written()
            else:
                return ("done", None) if kind == "done" else ("failed", message[0])
        return "cut", "its time was up"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGINT raise Interrupted within the block."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted(signal.Signals(number).name)

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _work(part: Part, plan: Plan, sender: Connection) -> None:
    """The life of a part's process."""
    os.setpgid(0, 0)  # so that it is killed with the processes it starts, and gets no Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        for finding, value in importlib.import_module(f"bench.gpu.{part.room}.{part.name}").run(plan):
            sender.send(("finding", finding, value))
        sender.send(("done",))
    except BaseException as error:
        traceback.print_exc()
        sender.send(("failed", f"{type(error).__name__}: {error}"))


def _kill(process: ForkServerProcess) -> None:
    """With everything it started."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
