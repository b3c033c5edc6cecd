"""Servers under test and other sides, as processes of their own."""

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dragoman.quickstart import HOST, is_serving

START_TIMEOUT_S = 180
POLL_S = 0.02
OWN_PORTS = range(20_000, 32_768)
"""Linux gives connections, and who asks for any port, those above; workers of Ray take those below."""


class NotServingError(RuntimeError):
    """A server has ended before it served, which it has told on standard error, or takes too long."""


@dataclass(frozen=True)
class Server:
    """A server that is serving."""

    port: int
    metrics_port: int
    process: subprocess.Popen[bytes]
    start_s: float
    """From the start of the process to the first SERVING."""

    @property
    def target(self) -> str:
        """Where clients find it."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def end(self) -> int:
        """Asks it to end, and waits until it has. Returns the exit code."""
        self.process.terminate()
        return self.process.wait()

    def counted(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """The sum of a counter's samples that have these labels."""
        wanted = (labels or {}).items()
        return sum(sample.value for sample in self.samples(name) if wanted <= sample.labels.items())

    def samples(self, name: str) -> list[Sample]:
        """All samples of that name, of a page that is read now."""
        with urllib.request.urlopen(f"http://{HOST}:{self.metrics_port}/metrics") as page:
            families = text_string_to_metric_families(page.read().decode())
            return [sample for family in families for sample in family.samples if sample.name == name]

    def rss_mb(self) -> float:
        """Resident memory now."""
        return self._status_mb("VmRSS")

    def peak_rss_mb(self) -> float:
        """Largest resident memory so far."""
        return self._status_mb("VmHWM")

    def descriptors(self) -> int:
        """Open files and connections."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self) -> int:
        """All of them."""
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def cpu_seconds(self) -> float:
        """Of all its threads so far."""
        text = Path(f"/proc/{self.pid}/stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status_mb(self, key: str) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith(key))
        return kilobytes / 1024


def leave_at_sigterm() -> None:
    """From now on SIGTERM ends this process as an error does, with exit code 143, so that what it started ends too.

    What has a way of its own to end keeps it.
    """
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


@contextlib.contextmanager
def serving(module: str, arguments: list[str], port: int | None = None, folder: Path | None = None) -> Iterator[Server]:
    """Runs `python -m module`, which takes what `server` takes, until the block ends.

    port: a free one if left open. folder: the checkout whose module it is. None: this one

    Raises NotServingError.
    """
    port, metrics_port = port or free_port(), free_port()
    command = [sys.executable, "-m", module, *arguments, "--port", str(port), "--metrics-port", str(metrics_port)]
    if "--http-port" not in arguments:
        command.append("--no-http")  # its port would be that of another server of the measurement
    # As where it is installed, its modules are compiled once and not at every start, and memory is on huge pages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    leave_at_sigterm()
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, cwd=folder)
    try:
        _wait_until_serving(port, process)
        yield Server(port, metrics_port, process, time.perf_counter() - started)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def or_exit(parser: argparse.ArgumentParser) -> Iterator[None]:
    """For a measurement that has arguments of a server: exits with 2 where that does not serve with them."""
    try:
        yield
    except NotServingError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")


class Side:
    """A process that is told something by a line, and answers by a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, line: str) -> None:
        """Says something that wants no answer."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def ask(self, line: str) -> str:
        """Raises RuntimeError where it ends instead of answering."""
        self.tell(line)
        assert self._process.stdout is not None
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(f"{self._process.args!r} ended with exit code {self._process.wait()}")
        return answer


@contextlib.contextmanager
def side(arguments: Sequence[str], folder: Path, packages: Path | None = None) -> Iterator[Side]:
    """Runs Python with these arguments until the block ends.

    folder: where it runs, whose modules it has
    packages: a folder that comes before those that are installed, and before these
    """
    path = [str(place) for place in (packages, folder) if place is not None]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield Side(process)  # which ends with its input


def free_port() -> int:
    """A port that nobody listens on, and that no connection is given before it is used, or used again."""
    for port in random.SystemRandom().sample(OWN_PORTS, len(OWN_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            return port
    raise RuntimeError(f"all ports from {OWN_PORTS[0]} to {OWN_PORTS[-1]} are taken")


def _wait_until_serving(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotServingError(f"the server ended with exit code {process.returncode} before it was serving")
        if is_serving(port):
            return
        time.sleep(POLL_S)
    raise NotServingError(f"the server was not serving within {START_TIMEOUT_S} s")
