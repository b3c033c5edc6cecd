"""The files of deploy/ that Grafana and Prometheus read, as tests want them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.server_process import ROOT

GRAFANA = ROOT / "deploy" / "grafana" / "dashboards"
RULES = ROOT / "deploy" / "prometheus" / "rules"

Json = Mapping[str, Any]

DASHBOARDS: Mapping[str, Json] = {file.stem: json.loads(file.read_text()) for file in sorted(GRAFANA.glob("*.json"))}
"""Name -> dashboard."""


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard."""

    dashboard: str
    section: str
    json: Json

    def __str__(self) -> str:
        return f"{self.dashboard}/{self.section}/{self.title}"

    @property
    def title(self) -> str:
        return str(self.json["title"])

    @property
    def targets(self) -> Sequence[Json]:
        return list(self.json["targets"])

    @property
    def expressions(self) -> Sequence[str]:
        return [target["expr"] for target in self.targets]


def panels() -> Sequence[Panel]:
    """All panels of all dashboards."""
    found, section = [], ""
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            if panel["type"] == "row":
                section = panel["title"]
            else:
                found.append(Panel(name, section, panel))
    return found


@cache
def rules() -> Sequence[Json]:
    """All rules of all groups."""
    files = [yaml.safe_load(file.read_text()) for file in sorted(RULES.glob("*.yml"))]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def recorded_names() -> Sequence[str]:
    """What rules record."""
    return [rule["record"] for rule in rules() if "record" in rule]


def alerts() -> Mapping[str, Json]:
    """Name -> rule."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}
