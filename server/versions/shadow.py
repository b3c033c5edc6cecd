"""A share of the live requests is answered by a candidate as well, for nobody, and the answers are compared.

The live answer never waits for that: it is on its way when its request is offered here. The candidate's workers let
the others go first at the cores, and what comes while the server is busy is not compared at all.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from itertools import zip_longest
from typing import Any

from server.errors import ServerError
from server.errors.state import Unavailable
from server.loaded import LoadedModel
from server.telemetry.calls import Call, begin
from server.telemetry.metrics.version import VersionMetrics
from server.translation.answer import Translation
from server.translation.options import Asked
from server.translation.targets import TargetText
from server.versions.rule import Comparison, Rule

log = logging.getLogger(__name__)

MOST_CALLS = 4
"""Of the candidate, at a time."""
DROPPED_S = 0.01
"""How often it is asked whether it has dropped those that are cancelled, which takes a step."""


class Shadow:
    """Compares a candidate with the version that serves."""

    def __init__(
        self,
        rule: Rule,
        served: LoadedModel,
        candidate: LoadedModel,
        metrics: VersionMetrics,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`chance`: a number from 0 to 1."""
        self.comparison = Comparison()
        self._rule, self._served, self._candidate = rule, served, candidate
        self._metrics, self._chance = metrics, chance
        self._same_ids = candidate.package.tokenizer is served.package.tokenizer  # which is taken over if it is equal
        self._calls = set[asyncio.Task[None]]()
        self._decided = asyncio.Event()

    def offer(self, asked: Asked, found: Sequence[Translation]) -> None:
        """A live request is answered: what the translator that serves tells its listener."""
        drawn = any(one.seed is not None for one in found)  # whose answers differ by their nature
        if drawn or self._decided.is_set() or self._chance() >= self._rule.share:
            return
        if self._served.runner.waiting or len(self._calls) >= MOST_CALLS:
            self._drop(len(found))
            return
        self._start(self._ask(asked, found))

    async def verdict(self) -> str | None:
        """Why the candidate is refused, once that is known. None: it is as good."""
        name, rule = self._served.model.name, self._rule
        failure = asyncio.wrap_future(self._candidate.runner.failure)
        decided = asyncio.create_task(self._decided.wait())
        waits: list[asyncio.Future[Any]] = [failure, decided]
        await asyncio.wait(waits, timeout=rule.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        self._decided.set()
        decided.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        while not (self._candidate.runner.idle or failure.done()):  # what it still drops would count as live
            await asyncio.sleep(DROPPED_S)
        compared = self.comparison
        log.info("the candidate of %s: %s", name, compared.told())
        if failure.done():
            return "its engine has failed"
        if (objection := compared.objection(rule)) is not None:
            return objection
        if compared.compared < rule.contents:
            return (
                f"{compared.compared} contents were compared in {rule.timeout_s:g} s, of {rule.contents}: "
                "set --shadow-contents lower, or --shadow-share or --shadow-timeout-s higher"
            )
        return None

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _ask(self, asked: Asked, found: Sequence[Translation]) -> None:
        begin(Call(method="shadow", bulk=True))  # nobody's: the live call is over
        again: Sequence[Translation]
        try:
            again = await self._candidate.translator.translate(
                asked.contents, asked.route, asked.options, no_cache=True, prompt=asked.prompt
            )
        except Unavailable:
            self._drop(len(found))
            return
        except ServerError as error:
            log.warning("the candidate of %s refuses what is answered: %s", self._served.model.name, error)
            again = []
        for one, other in zip_longest(found, again):
            self._compare(one, other)

    def _compare(self, served: Translation, candidate: Translation | None) -> None:
        [live, *_], new = served.hypotheses, None if candidate is None else candidate.hypotheses[0]
        equal = new is not None and self._equal(new, live)
        tokens = live.tokens if new is None else new.tokens
        self.comparison.add(
            equal,
            0.0 if new is None else abs(new.score - live.score),
            self._candidate.runner.spent_s(served.source_tokens, tokens),
            self._served.runner.spent_s(served.source_tokens, live.tokens),
        )
        self._metrics.compared(self._served.model.name, equal, self.comparison)
        if self.comparison.compared >= self._rule.contents or self.comparison.objection(self._rule) is not None:
            self._decided.set()

    def _equal(self, new: TargetText, live: TargetText) -> bool:
        """Several sequences of tokens have one text. The ids of two vocabularies cannot be compared, only counted."""
        tokens = new.token_ids == live.token_ids if self._same_ids else new.tokens == live.tokens
        return tokens and new.text == live.text

    def _drop(self, contents: int) -> None:
        self.comparison.dropped += contents
        self._metrics.dropped(self._served.model.name, contents)
