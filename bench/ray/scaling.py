"""How much faster bulk is on two nodes of one core than on one, each node kept to a core of its own.

Counted between the first window that is in the journal and the last, so that neither the start of Ray nor the load of
the model is in it. Head and command, which read, write and hand out, are on all cores: where there are two, they take
some of what the nodes would have. By turns, as a machine is not always equally fast.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.ray.bulk import journal_of, start
from bench.ray.findings import Findings
from bench.ray.nodes import Nodes, cpu_s
from dragoman.bulk.windows import ROWS

ASKED = 1.8
TURNS = 2
LOOK_S = 0.02


def compare_nodes(folder: Path, package: Path, sentences: Sequence[str], findings: Findings) -> None:
    """One node and then two, and again."""
    source, cores = folder / "scaled.txt", sorted(os.sched_getaffinity(0))
    source.write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
    ratios = list[float]()
    for turn in range(TURNS):
        rates = list[float]()
        for workers in (1, 2):
            target = folder / f"{turn}-by-{workers}.txt"
            with Nodes(folder, workers, pinned=cores[:workers]) as nodes:
                rate, cores_of = _rate(source, target, package, nodes, len(sentences))
            rates.append(rate)
            used = ", ".join(f"{who} {share:.2f}" for who, share in cores_of.items())
            findings.tell(f"nodes of one core: {workers}, {rate:.1f} rows a second; of a core had {used}")
        ratios.append(rates[1] / rates[0])
    told = " and ".join(f"{ratio:.2f}" for ratio in ratios)
    findings.tell(f"two nodes over one: {told} x, {ASKED} asked")


def _rate(source: Path, target: Path, package: Path, nodes: Nodes, rows: int) -> tuple[float, dict[str, float]]:
    """Rows a second, and how much of a core each process had."""
    run, journal = start(source, target, package, "--ray", nodes.address), journal_of(target)
    seen = list[tuple[float, int, dict[str, float]]]()
    """When there were how many windows, and who had had how many seconds of cores."""
    while run.poll() is None:
        windows = journal.read_bytes().count(b"\n") if journal.exists() else 0
        if windows > (seen[-1][1] if seen else 0):
            seen.append((time.monotonic(), windows, _cpu_s(run.pid, nodes)))
        time.sleep(LOOK_S)
    if run.returncode or len(seen) < 2:
        raise RuntimeError(f"bulk ended with {run.returncode} after {len(seen)} looks at its journal")
    (first_s, first, before), (last_s, _, _), (used_s, _, after) = seen[0], seen[-1], seen[-2]
    shares = {who: (after[who] - before[who]) / (used_s - first_s) for who in after} if used_s > first_s else {}
    return (rows - first * ROWS) / (last_s - first_s), shares


def _cpu_s(command: int, nodes: Nodes) -> dict[str, float]:
    """The command, the head of the cluster, and its nodes."""
    parts = {"the command": cpu_s(psutil.Process(command)), "the head": nodes.head.cpu_s()}
    return parts | {f"node {number}": node.cpu_s() for number, node in enumerate(nodes.workers, 1)}
