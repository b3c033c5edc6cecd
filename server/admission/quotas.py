"""Quotas: most that a caller may ask for, however much there is."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from server.admission.accounts import Accounts
from server.errors import QuotaExceeded
from server.errors.retry import apart
from server.telemetry.metrics.caller import CallerMetrics

BURST_S = 1.0
"""So many seconds' worth may come at once. One call that asks for more is let in when nothing is owed, and is owed."""
CALL_RETRY_S = 0.2
"""Advice to a caller with too many calls under way."""


class Quota(BaseModel):
    """Most that a caller may ask for. None: as much as there is."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    texts_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    cost_per_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds of a worker, for each second: 0.5 is half of one worker."""
    calls: int | None = Field(default=None, ge=1)
    """Under way at a time."""


@dataclass(slots=True)
class Account:
    """Of a caller. What is owed, is owed until then: the generic cell rate algorithm (ITU-T I.371)."""

    quota: Quota
    calls: int = 0
    texts_until: float = 0.0
    cost_until: float = 0.0

    def owes(self, now: float) -> bool:
        return self.calls > 0 or max(self.texts_until, self.cost_until) > now


class Running:
    """A call that is under way."""

    __slots__ = ("_account", "_caller", "_metrics")

    def __init__(self, account: Account, caller: str, metrics: CallerMetrics) -> None:
        self._account, self._caller, self._metrics = account, caller, metrics
        account.calls += 1
        metrics.running(caller, 1)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._account.calls -= 1
        self._metrics.running(self._caller, -1)


class Quotas:
    """All callers' accounts. Used on the event loop only."""

    def __init__(
        self,
        default: Quota,
        metrics: CallerMetrics,
        clock: Callable[[], float] = time.perf_counter,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """default: of callers without a quota of their own. `chance`: a number from 0 to 1."""
        self._default, self._metrics = default, metrics
        self._clock, self._chance = clock, chance
        self._accounts = Accounts[str, Account]()

    def running(self, caller: str, quota: Quota | None = None) -> "Running":
        """A call of the caller is under way from now on, until what this gives is left, which is a context.

        Raises QuotaExceeded. quota: None is the default.
        """
        account = self._account(caller)
        account.quota = quota or self._default
        most = account.quota.calls
        if most is not None and account.calls >= most:
            self._refuse(caller, "calls", account.calls + 1, 0, most, CALL_RETRY_S)
        return Running(account, caller, self._metrics)

    def check(self, caller: str, texts: int, cost: float) -> None:
        """Raises QuotaExceeded for a caller who owes too much. cost: seconds of a worker."""
        account, now = self._account(caller), self._clock()
        self._check(caller, "texts_per_s", texts, account.quota.texts_per_s, account.texts_until - now)
        self._check(caller, "cost_per_s", cost, account.quota.cost_per_s, account.cost_until - now)

    def take(self, caller: str, texts: int, cost: float) -> None:
        """The caller is let in with so much."""
        account, now = self._account(caller), self._clock()
        if account.quota.texts_per_s is not None:
            account.texts_until = max(account.texts_until, now) + texts / account.quota.texts_per_s
        if account.quota.cost_per_s is not None:
            account.cost_until = max(account.cost_until, now) + cost / account.quota.cost_per_s
        self._metrics.took(caller, texts, cost)

    def _check(self, caller: str, quota: str, asked: float, limit: float | None, owed_s: float) -> None:
        if limit is None:
            return
        left_s = BURST_S - max(owed_s, 0.0)
        wait_s = min(asked / limit, BURST_S) - left_s
        if wait_s > 0:
            self._refuse(caller, quota, asked, max(left_s, 0.0) * limit, limit, wait_s)

    def _refuse(self, caller: str, quota: str, asked: float, left: float, limit: float, wait_s: float) -> None:
        self._metrics.refused(caller, quota)
        raise QuotaExceeded(caller, quota, asked, left, limit, apart(wait_s, self._chance))

    def _account(self, caller: str) -> Account:
        account = self._accounts.get(caller)
        if account is None:
            now = self._clock()
            account = self._accounts.open(caller, Account(self._default), lambda one: one.owes(now))
        return account
