"""Where Prometheus finds the metrics of every process: each says so to the cluster, and an entry tells all of them.

The form is that of https://prometheus.io/docs/prometheus/latest/http_sd/.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

log = logging.getLogger(__name__)

NAMESPACE = b"dragoman"
PREFIX = "metrics:"
TELL_S = 5.0
"""How long the head of the cluster may take."""
FORGOTTEN_S = 60.0
"""After so long without a word a process is gone: Ray asks the health of each every ten seconds."""


async def announce(target: str, labels: Mapping[str, str]) -> None:
    """There are metrics at HOST:PORT. To be said again and again; that it cannot be said is no reason to end."""
    said = {"targets": [target], "labels": dict(labels), "at": time.time()}
    put = partial(_internal_kv_put, f"{PREFIX}{target}", json.dumps(said), namespace=NAMESPACE)
    await _tell(put, target)


async def withdraw(target: str) -> None:
    """There are none any more."""
    await _tell(partial(_internal_kv_del, f"{PREFIX}{target}", namespace=NAMESPACE), target)


async def _tell(cluster: Callable[[], object], target: str) -> None:
    try:
        async with asyncio.timeout(TELL_S):
            await asyncio.to_thread(cluster)
    except Exception as error:  # whatever Ray has for a head that does not answer
        log.warning("the cluster does not keep that there are metrics at %s: %r", target, error)


def announced(clock: Callable[[], float] = time.time) -> list[dict[str, Any]]:
    """All that were said lately. It waits for the cluster."""
    names = _internal_kv_list(PREFIX, namespace=NAMESPACE)
    values = (_internal_kv_get(name, namespace=NAMESPACE) for name in sorted(names))
    said = (json.loads(value) for value in values if value is not None)
    return [{"targets": one["targets"], "labels": one["labels"]} for one in said if clock() - one["at"] < FORGOTTEN_S]
