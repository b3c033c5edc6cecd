"""The documentation names everything a user can set, watch or type, and its links lead somewhere."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from pydantic import BaseModel

from server.config import Settings
from tests.watch.families import everything
from training.config import Experiment, ParallelText

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TYPES = ("counter", "gauge", "histogram")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)")


@pytest.fixture(scope="module")
def text() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def missing(names: list[str], text: str) -> list[str]:
    """The names that no page has as a whole word."""
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


@dataclass(frozen=True)
class Family:
    """A metric as Prometheus shows it."""

    name: str
    type: str
    labels: frozenset[str]


def metric_families() -> set[Family]:
    """What the server counts, sorted by what the page says of it."""
    everything(registry := CollectorRegistry())
    suffixes = {"counter": "_total", "info": "_info"}
    return {
        Family(family.name + suffixes.get(family.type, ""), family.type, _labels(family))
        for family in registry.collect()
    }


def documented_families() -> set[Family]:
    """The tables of docs/metrics.md."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines()]
    return {
        Family(name, "info" if kind == "gauge, always 1" else kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for _, names, kind, labels, *_ in (row for row in rows if len(row) > 4 and row[2].split(",")[0] in TYPES)
        for name in re.findall(r"`(\w+)`", names)
    }


def _labels(family: Metric) -> frozenset[str]:
    return frozenset(label for sample in family.samples for label in sample.labels) - {"le"}


def make_targets() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return [f"make {target}" for target in re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)]


def test_every_flag_is_documented(text: str) -> None:
    flags = [f"--{name.replace('_', '-')}" for name in Settings.model_fields]
    assert flags
    assert missing(flags, text) == []


def test_the_page_of_metrics_has_every_name_type_and_label_and_no_other() -> None:
    assert documented_families() == metric_families()


def test_the_queries_of_the_page_name_metrics_that_there_are() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    used = set(re.findall(r"dragoman_[a-z_]+", page.split("## Questions and queries")[1]))
    assert used
    known = {family.name for family in metric_families()}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in used} <= known


def test_every_key_of_an_experiment_is_documented() -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    keys = experiment_keys(Experiment)
    assert {"output", "peak_learning_rate", "[distillation]"} <= set(keys)
    assert missing(keys, page) == []


def experiment_keys(model: type[BaseModel]) -> list[str]:
    """Of a section and of those below it, whose names are in brackets."""
    keys = []
    for name, field in model.model_fields.items():
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        sections = [kind for kind in kinds if issubclass(kind, BaseModel) and kind is not ParallelText]
        keys += [f"[{name}]", *experiment_keys(sections[0])] if sections else [name]
    return keys


def test_every_make_target_is_documented(text: str) -> None:
    targets = make_targets()
    assert "make run" in targets
    assert missing(targets, text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
