"""How the server ends, and that it does."""

import asyncio
import logging
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn, Protocol

import grpc

from server.admission.permits import Admission
from server.errors import Draining, EngineStopped
from server.grpc.health import Health
from server.telemetry.logs import flush
from server.telemetry.observed import ObservedCalls
from server.traffic.arrivals import Arrivals

log = logging.getLogger(__name__)

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP is sent when a terminal is closed, and may mean something else: see `StopSignals.on_hangup`."""
FLUSH_S = 1.0
"""How long the last answers may take to get out."""
END_S = 3.0
"""How long all may take that follows the grace period, until the process is gone."""
LAST_S = 1.2
"""Of that: kept for what comes after the engines, which are traces that no collector takes."""
GAVE_UP = 1
"""Exit code of a process that did not end in that time."""
TELL_S = 0.5
"""How long it may take to tell where it hangs. Standard error may be what hangs."""


class Face(Protocol):
    """A port beside gRPC's."""

    async def stop(self) -> None:
        """No more connections, and no more requests by those there are. Waits for those that are being answered."""
        ...

    def cut(self) -> None:
        """Cuts off whatever is not sent."""
        ...


class StopSignals:
    """SIGTERM, SIGINT and SIGHUP: the first asks to finish, the second to stop at once, a third ends the process.

    Whatever hangs, the process is gone END_S after the grace period or the second signal. A thread sees to that, which
    the signals themselves wake: Python's handlers wait until the main thread comes back from what it waits for. Make it
    on the event loop of the main thread.
    """

    def __init__(self, grace_period_s: float) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._ends_s = math.inf
        """When whoever still waits is cut off, by time.monotonic."""
        self._hangup: Callable[[], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._grace_period_s = grace_period_s
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._former_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        # Under nohup, SIGHUP is ignored, and stays so.
        heard = [number for number in STOP if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
        self._former = {number: signal.signal(number, lambda number, frame: None) for number in heard}
        threading.Thread(target=self._watch, name="end", daemon=True).start()

    def engines_left_s(self) -> float:
        """How long engines may take to end. Without a limit, as long as nobody has asked for the end."""
        return max(0.0, self._ends_s - LAST_S - time.monotonic())

    def on_hangup(self, call: Callable[[], None]) -> None:
        """Has SIGHUP call that, on the event loop, and ask for no end."""
        self._hangup = call
        former = signal.signal(signal.SIGHUP, lambda number, frame: None)
        self._former.setdefault(signal.SIGHUP, former)

    def close(self) -> None:
        """Lets the process live on, whatever was received: for one that does more than serve."""
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        os.close(self._writer)

    def _watch(self) -> None:
        asked = [(self.first, self._grace_period_s), (self.second, 0.0)]
        while self._is_woken():
            received = os.read(self._reader, 1)
            if not received:
                os.close(self._reader)
                return
            if received[0] == signal.SIGHUP and self._hangup is not None:
                with suppress(RuntimeError):  # the loop has ended already
                    self._loop.call_soon_threadsafe(self._hangup)
            elif received[0] in STOP:
                if not asked:
                    break
                event, grace_s = asked.pop(0)
                self._ends_s = time.monotonic() + grace_s + END_S - TELL_S
                with suppress(RuntimeError):  # the loop has ended already
                    self._loop.call_soon_threadsafe(event.set)
        give_up()

    def _is_woken(self) -> bool:
        """Waits for the next signal, or until it is time to give up."""
        left_s = None if math.isinf(self._ends_s) else max(0.0, self._ends_s - time.monotonic())
        return bool(select.select([self._reader], [], [], left_s)[0])


def end_process(code: int) -> NoReturn:
    """Ends the process, now that nobody waits for it any more.

    Not by way of the interpreter's own end. That frees what the system frees anyway, takes a second for it on a busy
    machine, and has nobody who cuts it off: threads get no turn there.
    """
    flush()
    os._exit(code)


def give_up() -> NoReturn:
    """Ends the process though somebody waits, and tells where it hangs."""
    telling = threading.Thread(target=_tell_where, daemon=True)
    telling.start()
    telling.join(TELL_S)
    os._exit(GAVE_UP)


def _tell_where() -> None:
    """Not by faulthandler, which would hold the interpreter's lock while standard error hangs."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = (
        f"thread {names.get(ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
    log.critical("the server did not end in time and is cut off\n%s", "".join(stacks))
    flush()


async def report_crash(failure: asyncio.Future[Exception], admission: Admission) -> None:
    """Waits until a model's engines are given up. Its calls are refused then."""
    await asyncio.shield(failure)
    admission.close(EngineStopped)


async def drain(
    server: grpc.aio.Server,
    health: Health,
    admissions: Sequence[Admission],
    calls: ObservedCalls,
    grace_period_s: float,
    at_once: asyncio.Event,
    http: Face | None = None,
    pauses: Arrivals | None = None,
) -> None:
    """Sends clients elsewhere, lets the calls that run finish, answers those that do not, and ends the server.

    By HTTP, clients are told so until the end. Streams of requests that pause end at once, by `pauses`.

    Takes at most the grace period, which ends when `at_once` is set, and FLUSH_S.
    """
    for admission in admissions:
        admission.close(Draining)
    if pauses is not None:
        pauses.end()
    health.end()
    log.info("draining: %d calls are running, for at most %g s", calls.running, grace_period_s)
    # From now on connections are refused, and those that are open get a GOAWAY. Waits for all that is under way.
    stopping = asyncio.create_task(server.stop(grace_period_s + END_S))
    waits = [asyncio.create_task(wait) for wait in (calls.wait_until_idle(), at_once.wait())]
    await asyncio.wait(waits, timeout=grace_period_s, return_when=asyncio.FIRST_COMPLETED)
    for task in waits:
        task.cancel()
    if calls.running:
        log.warning("%d calls are still running and are answered with %s", calls.running, Draining.reason)
        calls.end(Draining())
    ends = [stopping] if http is None else [stopping, asyncio.create_task(http.stop())]
    _, hanging = await asyncio.wait(ends, timeout=FLUSH_S)
    if hanging:
        log.warning("%d calls, and answers that are not read, are cut off", calls.running)
        if http is not None:
            http.cut()
        await server.stop(None)
    await asyncio.gather(*ends)
