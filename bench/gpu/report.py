"""The results of a run as Markdown and JSON, with the machine named."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.gpu import figures, tables
from bench.gpu.plan import PARTS, Findings, Plan
from bench.gpu.runner import Outcome
from bench.pages.markdown import file_name, join, machine

LIBRARIES = ("onnxruntime-gpu", "onnxruntime", "torch", "transformers", "ctranslate2", "numpy")


@dataclass(frozen=True)
class Report:
    """What was found so far. Written after every finding, so that a run that is cut keeps what it has."""

    folder: Path
    plan: Plan
    device: Mapping[str, str]
    outcomes: dict[str, Outcome]
    """By part."""

    @property
    def path(self) -> Path:
        """The Markdown file."""
        name = f"{self.device['name']} check{' toy' if self.plan.toy else ''}"
        return self.folder / f"{date.today().isoformat()}-{file_name(name)}.md"

    def write(self) -> None:
        """Writes both files, each whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _replace(self.path, self.markdown())
        _replace(self.path.with_suffix(".json"), json.dumps(self.facts(), indent=1) + "\n")

    def facts(self) -> dict[str, object]:
        """Everything, as JSON."""
        return {
            "date": date.today().isoformat(),
            "machine": machine(),
            "device": dict(self.device),
            "versions": versions(),
            "toy": self.plan.toy,
            "figures": self.figures(),
            "parts": {name: dataclasses.asdict(outcome) for name, outcome in self.outcomes.items()},
        }

    def markdown(self) -> str:
        """Everything, to read."""
        lines = [f"# {date.today().isoformat()}, {', '.join(self.device.values())}", machine(), join(versions())]
        if self.plan.toy:
            lines.append("At toy size: it shows that every part runs. The figures say nothing.")
        lines += ["## Figures", tables.figures(self.figures())]
        titles = {part.name: part.title for part in PARTS}
        for name, outcome in self.outcomes.items():
            lines.append(f"## {titles[name]}")
            lines.append(f"{outcome.status}, {outcome.seconds:.0f} s" + (f": {outcome.error}" if outcome.error else ""))
            if outcome.findings:
                lines.append(tables.show(name, outcome.findings))
        return "\n\n".join(lines) + "\n"

    def figures(self) -> list[Findings]:
        """What was asked for."""
        findings = {name: outcome.findings for name, outcome in self.outcomes.items()}
        return figures.check(findings, judged=self.plan.device == "cuda" and not self.plan.toy)


def versions() -> dict[str, str]:
    """Of what is installed. Beside onnxruntime-gpu, another onnxruntime is one that is not imported."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    if "onnxruntime-gpu" in found:
        found.pop("onnxruntime", None)
    return found


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
