"""`python -m bench.ray`: a cluster of Ray gives the answers of a single server, whatever dies.

A head and two workers of one core, each as processes of their own. Sentences go through a plain server, through the
application of deploy/ray, and through bulk on the cluster, and are compared token for token. Then a replica, a node
and the entry get SIGKILL under load, and bulk loses a node, and is killed and gone on with. At last bulk runs on one
node of one core, and on two. See docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.flags.values import package_at, whole
from bench.ray.application import Answers, Application
from bench.ray.bulk import Bulk
from bench.ray.edges import Edges
from bench.ray.findings import Findings
from bench.ray.nodes import ROOT, Nodes
from bench.ray.scaling import compare_nodes
from bench.sentences import distinct
from dragoman.bulk.cluster.version import check_version
from dragoman.bulk.errors import WrongUsage
from dragoman.bulk.windows import ROWS

PARTS = ("serve", "edges", "bulk", "nodes")
LEAST_OF_NODES = 2 * ROWS
"""Sentences of the part that looks at the journal from window to window."""


def main(given: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code: 1 if an answer was wrong, or a call failed.

    Exits the process with 2 where no cluster is to be had, or it ended.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.ray", description=__doc__)
    parser.add_argument("--sentences", type=whole, default=10_000, help="distinct ones")
    parser.add_argument("--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt", help="what is served")
    parser.add_argument("--part", choices=PARTS, action="append", help="one of them; may be given for several")
    arguments = parser.parse_args(given)
    parts = arguments.part or PARTS
    if "nodes" in parts and arguments.sentences <= LEAST_OF_NODES:
        parser.error(
            f"--sentences is {arguments.sentences}; the part nodes needs more than {LEAST_OF_NODES}, two windows of "
            "bulk: give more, or name the other parts"
        )
    try:
        check_version()
        return run(arguments.package.resolve(), distinct(arguments.sentences), parts)
    except (WrongUsage, RuntimeError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")


def run(package: Path, sentences: Sequence[str], parts: Sequence[str]) -> int:
    """Finds it all out. Returns the exit code. Raises RuntimeError where a server, a node or a run ends."""
    findings = Findings()
    with TemporaryDirectory(prefix="r") as name:
        folder = Path(name)
        answers = Answers(package, sentences, findings)
        if {"serve", "bulk"} & set(parts):
            answers.of_a_server()
        if "serve" in parts:
            with Nodes(folder, workers=2) as nodes:
                Application(folder, nodes, answers).run()
        if "edges" in parts:
            with Nodes(folder, workers=2, cores=4) as nodes:
                Edges(folder, nodes, findings).run()
        if "bulk" in parts:
            with Nodes(folder, workers=2) as nodes:
                Bulk(folder, nodes, answers).run()
        if "nodes" in parts:
            compare_nodes(folder, package, sentences, findings)
    return findings.end()


if __name__ == "__main__":
    sys.exit(main())
