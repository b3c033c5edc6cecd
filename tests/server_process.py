"""`python -m server` as a process, and what it shows of itself."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

ROOT = Path(__file__).parent.parent
WAIT_S = 60.0
"""Longest wait for something that must happen. Reaching it is a failure, not a pause."""
POLL_S = 0.02
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Before a command: permissions of files hold for it, as they do not for root."""


@dataclass(frozen=True)
class Metrics:
    """What Prometheus would see just now."""

    samples: Sequence[Sample]

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of the samples that have this name and these labels."""
        return sum(s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items())


@dataclass
class ServerProcess:
    """A server that is serving."""

    process: subprocess.Popen[str]
    port: int
    metrics_port: int
    told: str = ""
    """What its log had said by then."""

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def metrics(self) -> Metrics:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=WAIT_S) as page:
            families = text_string_to_metric_families(page.read().decode())
        return Metrics([sample for family in families for sample in family.samples])

    def end(self, *numbers: signal.Signals) -> int:
        """Sends signals; returns the exit code."""
        for number in numbers:
            self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@contextmanager
def server_process(
    package: Path, *arguments: object, environment: Mapping[str, str] | None = None, program: str | None = None
) -> Iterator[ServerProcess]:
    """Starts a server on free ports, with two workers, and without HTTP unless asked. It is gone afterwards.

    program: runs this instead of `python -m server`, with the same arguments
    """
    http = () if "--http-port" in arguments else ("--no-http",)
    flags = "--port", 0, "--metrics-port", 0, "--workers", 2, *http
    command = server_command("--package", package, *flags, *arguments)
    if program is not None:
        command[1:3] = ["-c", program]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            told = ""
            while len(ports := re.findall(r"127\.0\.0\.1:(\d+)", told)) < 2:
                line = process.stderr.readline()
                assert line, told
                told += line
            port, metrics_port = map(int, ports)
            yield ServerProcess(process, port, metrics_port, told)
        finally:
            process.kill()


def server_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "server", *map(str, arguments)]


def eventually(condition: Callable[[], bool]) -> None:
    """Waits for something that another process does in its own time."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(POLL_S)
