"""Where Prometheus finds the metrics of every process: each says so to the cluster, and an entry tells all of them.

The form is that of https://prometheus.io/docs/prometheus/latest/http_sd/.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)

NAMESPACE = b"dragoman"
PREFIX = "metrics:"
FORGOTTEN_S = 60.0
"""After so long without a word a process is gone: Ray asks the health of each every ten seconds."""


def announce(name: str, target: str, labels: Mapping[str, str]) -> None:
    """There are metrics at HOST:PORT. To be said again and again. It waits for the cluster."""
    said = {"targets": [target], "labels": dict(labels), "at": time.time()}
    _internal_kv_put(f"{PREFIX}{name}", json.dumps(said), namespace=NAMESPACE)


def withdraw(name: str) -> None:
    """There are none any more."""
    _internal_kv_del(f"{PREFIX}{name}", namespace=NAMESPACE)


def announced(clock: Callable[[], float] = time.time) -> list[dict[str, Any]]:
    """All that were said lately. It waits for the cluster."""
    names = _internal_kv_list(PREFIX, namespace=NAMESPACE)
    values = (_internal_kv_get(name, namespace=NAMESPACE) for name in sorted(names))
    said = (json.loads(value) for value in values if value is not None)
    return [{"targets": one["targets"], "labels": one["labels"]} for one in said if clock() - one["at"] < FORGOTTEN_S]
