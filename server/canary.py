"""The canary: sources whose answers the package's certificate knows, asked of the engine that serves.

A kernel, a processor or memory that goes wrong slowly is told by nobody else: the answers are fluent, and wrong.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from engine.errors import Closing, OutOfMemory, Stopped
from engine.loading.probes import KnownAnswer
from engine.request import Event, Failed, Request
from server.telemetry.metrics.canary import CanaryMetrics

log = logging.getLogger(__name__)

NO_VERDICT = (Closing, Stopped, OutOfMemory)
"""Errors that say nothing of the answers."""


class Canary:
    """Asks every probe alone, then all of them together in the live batches of all workers."""

    def __init__(
        self,
        model: str,
        probes: Sequence[KnownAnswer],
        submit: Callable[[Request], None],
        workers: int,
        metrics: CanaryMetrics,
    ) -> None:
        """`model`: its name. submit: to the engine, whose events come from other threads."""
        self._model = model
        self._probes, self._submit, self._workers = probes, submit, workers
        self._metrics = metrics
        self._equal = True
        """What the last answers were, of which anything can be said."""

    def count_in(self, metrics: CanaryMetrics) -> None:
        """Counts there from now on."""
        self._metrics = metrics

    async def check(self) -> bool:
        """Whether all answers have the tokens that they must, and their scores. The log says which do not.

        Where there were no answers, it is as it was.
        """
        alone = [(probe, await self._ask(probe)) for probe in self._probes]
        crowd = [probe for _ in range(self._workers) for probe in self._probes]
        together = zip(crowd, await asyncio.gather(*map(self._ask, crowd)), strict=True)
        found = [self._compare(probe, event, "alone") for probe, event in alone]
        found += [self._compare(probe, event, "in a live batch") for probe, event in together]
        if any(verdict is not None for verdict in found):
            self._equal = False not in found
        self._metrics.checked(self._equal)
        return self._equal

    async def learn(self) -> None:
        """Takes what the engine answers now for right: where processors round otherwise than export's did.

        Probes that it answers otherwise in a batch are left out: there, alone and together are as right.
        """
        learnt = [probe.learnt(await self._ask(probe)) for probe in self._probes]
        known = [probe for probe in learnt if probe is not None]
        together = await asyncio.gather(*map(self._ask, known))
        self._probes = [probe for probe, event in zip(known, together, strict=True) if probe.difference(event) is None]

    def _compare(self, probe: KnownAnswer, event: Event, where: str) -> bool | None:
        """None: there is nothing to be said."""
        if isinstance(event, Failed) and isinstance(event.error, NO_VERDICT):
            return None
        wrong = probe.difference(event)
        self._metrics.answered(equal=wrong is None)
        if wrong is not None:
            log.error("the canary of %s, %s: probe %d %s", self._model, where, self._probes.index(probe), wrong)
        return wrong is None

    async def _ask(self, probe: KnownAnswer) -> Event:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Event] = loop.create_future()
        self._submit(probe.request(lambda event: post(loop, answer, event)))
        return await answer


class Canaries:
    """Those of all models."""

    def __init__(self, canaries: Callable[[], Iterable[Canary]]) -> None:
        """canaries: those of the models that are served just then."""
        self._canaries = canaries
        self.asked = asyncio.Event()
        """Set, it has all of them checked before the time has come."""

    async def check(self) -> bool:
        """Whether all answers of all of them are as they must be."""
        return all([await canary.check() for canary in self._canaries()])

    async def watch(self, interval_s: float, told: Callable[[bool], None] | None = None) -> None:
        """Checks every so many seconds, for ever; 0: never. Whoever is told hears what `check` found."""
        while interval_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self.asked.wait()
            self.asked.clear()
            equal = await self.check()
            if told is not None:
                told(equal)


def post(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Event], event: Event) -> None:
    """Answers whoever waits on the loop, if somebody still does. Called on an engine thread."""
    loop.call_soon_threadsafe(lambda: None if answer.done() else answer.set_result(event))
