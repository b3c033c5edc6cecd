"""A real Prometheus and a real Alertmanager, with the files of deploy/ but for addresses and waiting times."""

import json
import re
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import yaml

from bench.process import free_port
from tests.server_process import ROOT, WAIT_S, eventually
from tests.watch.dashboards import RULES

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that scrapes and evaluates every second."""

    port: int

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the HTTP API. Fails on anything else."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as page:
            answer = json.load(page)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str, at: str = "") -> Mapping[Labels, float]:
        """Labels -> value of an instant vector, now or at a time in seconds since the epoch."""
        data = self.get("query", query=expression, **({"time": at} if at else {}))
        assert data["resultType"] in ("vector", "scalar"), data
        if data["resultType"] == "scalar":
            return {(): float(data["result"][1])}
        return {tuple(sorted(series["metric"].items())): float(series["value"][1]) for series in data["result"]}

    def scrapes(self, since: float) -> Sequence[str]:
        """The times of the scrapes since then, as Prometheus writes them."""
        found = self.get("query", query="dragoman_rows_capacity[10m]")["result"]
        return [repr(time) for series in found for time, _ in series["values"] if time > since]

    def evaluated(self) -> float:
        """Since when every group of rules has been evaluated, in seconds since the epoch."""
        return min(datetime.fromisoformat(group["lastEvaluation"]).timestamp() for group in self.get("rules")["groups"])


@dataclass
class Webhook:
    """What an Alertmanager has delivered: path -> alerts."""

    port: int
    delivered: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Alertmanager:
    """An Alertmanager that waits for a second at most."""

    port: int

    def inhibited(self) -> set[str]:
        """The alerts that fire and are not told, because another one is."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v2/alerts", timeout=WAIT_S) as page:
            return {alert["labels"]["alertname"] for alert in json.load(page) if alert["status"]["inhibitedBy"]}


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A receiver of alerts."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            hook.delivered.setdefault(self.path, []).extend(body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        hook = Webhook(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def alertmanager(folder: Path, hook: Webhook) -> Iterator[Alertmanager]:
    """An Alertmanager with our routes, and a webhook for each receiver at `/NAME`."""
    config = yaml.safe_load((ROOT / "deploy/alertmanager/alertmanager.yml").read_text())
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": f"http://127.0.0.1:{hook.port}/{receiver['name']}"}]
    for route in (config["route"], *config["route"]["routes"]):
        route.update(group_wait="1s", group_interval="1s")
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    port = free_port()
    flags = f"--config.file={file} --storage.path={folder}/alerts --cluster.listen-address="
    with running(f"prometheus-alertmanager {flags} --web.listen-address=127.0.0.1:{port}", port):
        yield Alertmanager(port)


@contextmanager
def prometheus(folder: Path, target: str, alerts: Alertmanager) -> Iterator[Prometheus]:
    """A Prometheus that scrapes one server, with our rules."""
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(hasty(rules, folder)) for rules in RULES.glob("*.yml")]
    [manager] = config["alerting"]["alertmanagers"]
    manager["static_configs"] = [{"targets": [f"127.0.0.1:{alerts.port}"]}]
    [job] = config["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [target]}]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    port = free_port()
    flags = f"--config.file={file} --storage.tsdb.path={folder}/series --enable-feature=exemplar-storage"
    with running(f"prometheus {flags} --web.listen-address=127.0.0.1:{port}", port):
        yield Prometheus(port)


def hasty(rules: Path, folder: Path) -> Path:
    """The same rules, evaluated every second, and alerts that wait for nothing. Expressions are as they are."""
    text = re.sub(r"^( +)(interval|for): .*$", r"\1\2: 1s", rules.read_text(), flags=re.MULTILINE)
    copy = folder / rules.name
    copy.write_text(text)
    return copy


@contextmanager
def running(command: str, port: int) -> Iterator[None]:
    """A process that is ready. It is gone afterwards."""
    with subprocess.Popen(command.split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: is_ready(process, port))
            yield
        finally:
            process.kill()


def is_ready(process: "subprocess.Popen[bytes]", port: int) -> bool:
    assert process.poll() is None, f"{process.args!r} has ended"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=WAIT_S) as page:
            return bool(page.status == 200)
    except OSError:
        return False
