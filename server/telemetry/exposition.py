"""The page that Prometheus scrapes, as prometheus_client writes it, to the byte, in less than half the time.

Most of a line, its name and labels, never changes, so it is written once and kept: the interpreter is busy for as long
as a page takes to write, and calls wait.
"""

import logging
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

log = logging.getLogger(__name__)

PATH = "/metrics"
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


class MetricsServer(ThreadingHTTPServer):
    """Serves the page of a registry, each request on a thread of its own."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        [(self.address_family, _, _, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self.page = Page(registry)
        super().__init__(address, _Handler)  # type: ignore[arg-type]  # of IPv6 it has four parts

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs why a page was not sent, unless whoever asked for it has gone."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            log.exception("a scrape failed")


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer

    def do_GET(self) -> None:
        """Sends the page in the format that is asked for."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"the metrics are at {PATH}")
            return
        openmetrics = OPENMETRICS in self.headers.get("Accept", "")
        page = self.server.page.write(openmetrics)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPES[openmetrics])
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is not worth a line."""


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
