"""The documentation names everything a user can set, watch or type, and its links lead somewhere."""

import re
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from models.train.config import Experiment, ParallelText
from server.config import Settings
from server.metrics import Metrics

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)")


@pytest.fixture(scope="module")
def text() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def missing(names: list[str], text: str) -> list[str]:
    """The names that no page has as a whole word."""
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


def metric_names() -> list[str]:
    """Every family as Prometheus shows it: a counter ends in _total."""
    registry = CollectorRegistry()
    Metrics(registry)
    return [family.name + "_total" * (family.type == "counter") for family in registry.collect()]


def make_targets() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return [f"make {target}" for target in re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)]


def test_every_flag_is_documented(text: str) -> None:
    flags = [f"--{name.replace('_', '-')}" for name in Settings.model_fields]
    assert flags
    assert missing(flags, text) == []


def test_every_metric_is_documented(text: str) -> None:
    names = metric_names()
    assert names
    assert missing(names, text) == []


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
