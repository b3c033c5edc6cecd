"""`dragoman bulk --ray` beside a single server and bulk on one machine: equal translations, whatever dies."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.ray.application import Answers
from bench.ray.nodes import ROOT, Nodes

Run = subprocess.Popen[bytes]


def start(source: Path, target: Path, package: Path, *more: str) -> Run:
    """A run of bulk."""
    asked = map(str, (source, target, "--to", "pt", "--package", package, *more))
    return subprocess.Popen([sys.executable, "-m", "dragoman", "bulk", *asked], cwd=ROOT)


def journal_of(target: Path) -> Path:
    """Of a run on one file."""
    return target.with_name(f"{target.name}.unfinished") / "0.rows"


class Bulk:
    """One file."""

    def __init__(self, folder: Path, nodes: Nodes, answers: Answers) -> None:
        self._folder, self._nodes, self._package, self._tell = folder, nodes, answers.package, answers.findings.tell
        self._source, self._expected = folder / "source.txt", answers.texts().encode()
        self._source.write_text("".join(f"{text}\n" for text in answers.sentences), encoding="utf-8")

    def run(self) -> None:
        """All that is to be found out."""
        cluster = "--ray", self._nodes.address
        self._compare("on this machine", "alone.txt", (), lambda run: None)
        self._compare("on a cluster", "whole.txt", cluster, lambda run: None)
        self._compare("on a cluster, killed and gone on with", "killed.txt", cluster, self._kill)
        self._compare("on a cluster that loses a node", "lost.txt", cluster, self._lose_node)

    def _compare(self, what: str, name: str, more: tuple[str, ...], disturb: Callable[[Run], object]) -> None:
        target, began = self._folder / name, time.perf_counter()
        run = start(self._source, target, self._package, *more)
        self._wait_for_rows(target, run)
        disturb(run)
        if (code := run.wait()) == -signal.SIGKILL:
            code = start(self._source, target, self._package, *more).wait()
        same = code == 0 and target.read_bytes() == self._expected
        told = "equal to a server's answers" if same else f"not equal to a server's answers, exit code {code}"
        self._tell(f"bulk {what}: {time.perf_counter() - began:.1f} s, {told}", same)

    def _kill(self, run: Run) -> None:
        run.send_signal(signal.SIGKILL)

    def _lose_node(self, _: Run) -> None:
        """One that has an engine."""
        dying: Any = max(self._nodes.workers, key=lambda node: len(node.of("NodeEngine")))
        dying.kill()
        self._nodes.workers.remove(dying)

    def _wait_for_rows(self, target: Path, run: Run) -> None:
        """Until the run has something in its journal, or is over."""
        journal = journal_of(target)
        while run.poll() is None and not (journal.exists() and journal.stat().st_size):
            time.sleep(0.1)
