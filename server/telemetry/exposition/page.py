"""The page that Prometheus scrapes, as prometheus_client writes it, to the byte, in less than half the time.

Most of a line, its name and labels, never changes, so it is written once and kept: the interpreter is busy for as long
as a page takes to write, and calls wait.
"""

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

OPENMETRICS = "application/openmetrics-text"
"""What Prometheus asks for first. Only there are exemplars."""
CONTENT_TYPES = {
    True: f"{OPENMETRICS}; version=1.0.0; charset=utf-8",
    False: "text/plain; version=0.0.4; charset=utf-8",
}
"""Of a page that is OpenMetrics, or is not."""
SUFFIXES = {"counter": "_total", "info": "_info"}
"""What the plain format adds to the name of a family."""


class Page:
    """What a registry has, as text. Counters, gauges, histograms and infos, without timestamps."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._series: dict[tuple[str, ...], str] = {}
        """Name and labels of every series, as they are written. A family has the same labels in all its samples."""

    def write(self, openmetrics: bool) -> bytes:
        """The page as it is now."""
        lines = []
        for family in self._registry.collect():
            lines.append(_heading(family, openmetrics))
            for sample in family.samples:
                line = f"{self._name(sample)} {floatToGoString(sample.value)}"
                lines.append(line + _exemplar(sample.exemplar) if openmetrics and sample.exemplar else line)
        if openmetrics:
            lines.append("# EOF")
        return "\n".join([*lines, ""]).encode()

    def _name(self, sample: Sample) -> str:
        """`name{label="value",...}`."""
        key = sample.name, *sample.labels.values()
        written = self._series.get(key)
        if written is None:
            written = self._series[key] = sample.name + (_labels(sample.labels) if sample.labels else "")
        return written


def _heading(family: Metric, openmetrics: bool) -> str:
    kind = "gauge" if family.type == "info" and not openmetrics else family.type
    name = family.name if openmetrics else family.name + SUFFIXES.get(family.type, "")
    meaning = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {_quoteless(meaning) if openmetrics else meaning}\n# TYPE {name} {kind}"


def _exemplar(exemplar: Exemplar) -> str:
    return f" # {_labels(exemplar.labels)} {floatToGoString(exemplar.value)} {exemplar.timestamp}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in sorted(labels.items())) + "}"


def _escape(value: str) -> str:
    return _quoteless(value.replace("\\", r"\\").replace("\n", r"\n"))


def _quoteless(text: str) -> str:
    return text.replace('"', r"\"")
