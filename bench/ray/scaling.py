"""How much faster bulk is on two nodes of one core than on one, each node kept to a core of its own.

Counted between the first window that is in the journal and the last, so that neither the start of Ray nor the load of
the model is in it. Head and command, which read, write and hand out, are on all cores: where there are two, they take
some of what the nodes would have.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench.ray.bulk import journal_of, start
from bench.ray.findings import Findings
from bench.ray.nodes import Nodes
from dragoman.bulk.windows import ROWS

ASKED = 1.8
LOOK_S = 0.02


def compare_nodes(folder: Path, package: Path, sentences: Sequence[str], findings: Findings) -> None:
    """One node, and then two."""
    source, cores = folder / "scaled.txt", sorted(os.sched_getaffinity(0))
    source.write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
    rates = list[float]()
    for workers in (1, 2):
        with Nodes(folder, workers, pinned=cores[:workers]) as nodes:
            rates.append(_rate(source, folder / f"by-{workers}.txt", package, nodes, len(sentences)))
        findings.tell(f"nodes of one core: {workers}, {rates[-1]:.1f} rows a second")
    findings.tell(f"two nodes over one: {rates[1] / rates[0]:.2f} x, {ASKED} asked")


def _rate(source: Path, target: Path, package: Path, nodes: Nodes, rows: int) -> float:
    """Rows a second."""
    run, journal = start(source, target, package, "--ray", nodes.address), journal_of(target)
    seen = list[tuple[float, int]]()
    """When there were how many windows."""
    while run.poll() is None:
        windows = journal.read_bytes().count(b"\n") if journal.exists() else 0
        if windows > (seen[-1][1] if seen else 0):
            seen.append((time.monotonic(), windows))
        time.sleep(LOOK_S)
    if run.returncode or len(seen) < 2:
        raise RuntimeError(f"bulk ended with {run.returncode} after {len(seen)} looks at its journal")
    (first_s, first), (last_s, _) = seen[0], seen[-1]
    return (rows - first * ROWS) / (last_s - first_s)
