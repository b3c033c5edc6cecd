"""Nodes of a Ray cluster, each as processes of its own on this machine, on the loopback interface alone.

Ray listens on every interface: run it in a network namespace that has no other one.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil

from bench.process import free_port, leave_at_sigterm
from dragoman.quickstart import HOST

ROOT = Path(__file__).parents[2]
RAY = Path(sys.executable).with_name("ray")
STORE_BYTES = 128 * 2**20
START_S, END_S = 120.0, 60.0
SHOWN = 2000
"""Characters of what a node complains."""
ATTEMPTS = 5
"""To start a node: Ray gives its own processes thirty seconds, which a busy machine may not have."""
WITHOUT = ("--include-log-monitor=false",)
"""A process that nobody needs here, and whose start keeps others waiting; as a head's `--no-monitor`."""
STARTED = "Ray runtime started."
"""What a node says when it has joined."""


class Node:
    """A node that joins the cluster, or begins it."""

    def __init__(self, log: Path, cores: int, arguments: Sequence[str], pinned: int | None = None) -> None:
        """Waits until it has joined. Raises RuntimeError if it does not.

        log: a file of its own. pinned: the one core of the machine that its processes may use. None: all
        """
        environment = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT), "RAY_SERVE_LOG_TO_STDERR": "0"}
        command = [RAY, "start", "--block", f"--node-ip-address={HOST}", f"--num-cpus={cores}"]
        command += [f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats", *WITHOUT, *arguments]
        if pinned is not None:
            command = ["taskset", "--cpu-list", pinned, *command]
        leave_at_sigterm()
        self._process: subprocess.Popen[bytes]
        for _ in range(ATTEMPTS):
            with log.open("wb") as out:
                self._process = subprocess.Popen(
                    list(map(str, command)), stdout=out, stderr=out, cwd=ROOT, env=os.environ | environment
                )
            if self._has_joined(log):
                return
            self.kill()
        told = log.read_text(errors="replace")[-SHOWN:]
        raise RuntimeError(f"a node has not joined the cluster, tried {ATTEMPTS} times:\n{told}")

    def _has_joined(self, log: Path) -> bool:
        """Waits until it has, or has not."""
        deadline = time.monotonic() + START_S
        while STARTED not in log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    @property
    def processes(self) -> list[psutil.Process]:
        """All of them."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        return []

    def of(self, name: str) -> list[psutil.Process]:
        """Those of workers that have this in their name, such as a deployment's."""
        found = []
        for process in self.processes:
            with suppress(psutil.Error):
                if (command := process.cmdline()) and command[0].startswith("ray::") and name in command[0]:
                    found.append(process)
        return found

    def cpu_s(self) -> float:
        """Of all that run now, since they began."""
        return sum(map(cpu_s, self.processes))

    def memory_mb(self) -> float:
        """Resident memory less what is shared with other processes, of all of them."""
        total = 0
        for process in self.processes:
            with suppress(psutil.Error):
                total += process.memory_full_info().uss
        return total / 2**20

    def kill(self) -> None:
        """The machine is gone."""
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()

    def end(self) -> None:
        """Asks it to leave, and waits; then does not ask any more."""
        left = self.processes
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()


def cpu_s(process: psutil.Process) -> float:
    """What a process has had of cores. 0: it has ended."""
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


class Nodes:
    """A head without processors, and nodes that work: a cluster."""

    def __init__(self, folder: Path, workers: int, cores: int = 1, pinned: Sequence[int] = ()) -> None:
        """`folder`: a short name, as sockets are in it. cores: that each worker says it has.

        pinned: the one core that each worker may use. Empty: all
        """
        self._folder, self._port, self._started = folder, free_port(), 0
        more = ["--include-dashboard=false", "--no-monitor", f"--temp-dir={folder / 'ray'}", f"--port={self._port}"]
        self.head = self._node(0, ["--head", *more])
        self.workers: list[Node] = []
        try:
            for core in pinned or (None,) * workers:
                self.workers.append(self.add(cores, core))
        except BaseException:  # none of them is left behind
            self.__exit__()
            raise

    @property
    def address(self) -> str:
        """Of the cluster."""
        return f"{HOST}:{self._port}"

    def add(self, cores: int = 1, pinned: int | None = None) -> Node:
        """One more worker."""
        return self._node(cores, [f"--address={self.address}"], pinned)

    def _node(self, cores: int, arguments: Sequence[str], pinned: int | None = None) -> Node:
        self._started += 1
        log = self._folder / f"node-{self._started}.log"
        return Node(log, cores, [*arguments, f"--dashboard-agent-listen-port={free_port()}"], pinned)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in [*self.workers, self.head]:
            node.end()
