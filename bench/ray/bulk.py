"""`dragoman bulk --ray` beside the same on one machine: equal bytes, whatever dies."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.ray.findings import Findings
from bench.ray.nodes import ROOT, Nodes

Run = subprocess.Popen[bytes]


class Bulk:
    """One file."""

    def __init__(self, folder: Path, nodes: Nodes, package: Path, sentences: Sequence[str], findings: Findings) -> None:
        self._folder, self._nodes, self._package, self._tell = folder, nodes, package, findings.tell
        self._source, self._expected = folder / "source.txt", folder / "expected.txt"
        self._source.write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")

    def run(self) -> None:
        """All that is to be found out."""
        began = time.perf_counter()
        self._start(self._expected).wait()
        self._tell(f"bulk on this machine: {time.perf_counter() - began:.1f} s")
        cluster = "--ray", self._nodes.address
        self._compare("on a cluster", "whole.txt", cluster, lambda run: None)
        self._compare("on a cluster, killed and gone on with", "killed.txt", cluster, self._kill)
        self._compare("on a cluster that loses a node", "lost.txt", cluster, self._lose_node)

    def _compare(self, what: str, name: str, cluster: Sequence[str], disturb: Callable[[Run], object]) -> None:
        target, began = self._folder / name, time.perf_counter()
        run = self._start(target, *cluster)
        self._wait_for_rows(target, run)
        disturb(run)
        if (code := run.wait()) == -signal.SIGKILL:
            code = self._start(target, *cluster).wait()
        same = code == 0 and target.read_bytes() == self._expected.read_bytes()
        told = "equal to that of one machine" if same else f"not equal to that of one machine, exit code {code}"
        self._tell(f"bulk {what}: {time.perf_counter() - began:.1f} s, {told}", same)

    def _start(self, target: Path, *more: str) -> Run:
        asked = map(str, (self._source, target, "--to", "pt", "--package", self._package, *more))
        return subprocess.Popen([sys.executable, "-m", "dragoman", "bulk", *asked], cwd=ROOT)

    def _kill(self, run: Run) -> None:
        run.send_signal(signal.SIGKILL)

    def _lose_node(self, _: Run) -> None:
        """One that has an engine."""
        dying: Any = max(self._nodes.workers, key=lambda node: len(node.of("NodeEngine")))
        dying.kill()
        self._nodes.workers.remove(dying)

    def _wait_for_rows(self, target: Path, run: Run) -> None:
        """Until the run has something in its journal, or is over."""
        journal = target.with_name(f"{target.name}.unfinished") / "0.rows"
        while run.poll() is None and not (journal.exists() and journal.stat().st_size):
            time.sleep(0.1)
