"""Enough of PromQL to find the metrics in an expression, and what is done to each."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from prometheus_client import CollectorRegistry

from tests.watch.families import everything

SELECTOR = re.compile(
    r"(?P<function>(?:rate|increase|changes|deriv)\()?"
    r"(?P<name>(?:job:)?(?:dragoman|process)[a-z0-9_:]*)(?P<labels>\{[^}]*\})?(?P<window>\[[^]]*\])?"
)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True)
class Selector:
    """A metric as an expression has it."""

    name: str
    labels: tuple[str, ...]
    function: str
    """What is done to its range: `rate`, say. Empty for an instant."""
    window: str


def selectors(expression: str) -> Iterator[Selector]:
    """All metrics of an expression."""
    for found in SELECTOR.finditer(STRING.sub('""', expression)):
        labels = re.findall(r"(\w+)\s*[=!]", found["labels"] or "")
        yield Selector(
            found["name"], tuple(labels), (found["function"] or "").rstrip("("), (found["window"] or "")[1:-1]
        )


@cache
def known() -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    """The series of the server that only grow, and all others: name -> labels, with those that Prometheus adds."""
    registry = CollectorRegistry()
    everything(registry)
    counters: dict[str, set[str]] = {}
    gauges: dict[str, set[str]] = {}
    for family in registry.collect():
        series = counters if family.type in ("counter", "histogram") else gauges
        for sample in family.samples:
            series.setdefault(sample.name, {"job", "instance", "replica"}).update(sample.labels)
    return counters, gauges


def misuses(expression: str, recorded: Collection[str] = ()) -> list[str]:
    """What is wrong with the metrics of an expression. `recorded`: names that rules record."""
    counters, gauges = known()
    wrong = []
    for selector in selectors(expression):
        if selector.name in recorded:
            continue
        if selector.name not in {*counters, *gauges}:
            wrong.append(f"there is no metric {selector.name}")
            continue
        if unknown := set(selector.labels) - {**counters, **gauges}[selector.name]:
            wrong.append(f"{selector.name} has no label {unknown}")
        if (selector.name in counters) != (selector.function in ("rate", "increase")):
            wrong.append(f"{selector.name}: a rate of what grows, and of nothing else")
    return wrong
