"""`python -m bench`: measures this project against CTranslate2 on this machine. See docs/benchmarks.md."""

import argparse
import tempfile
from pathlib import Path

from bench.cpu import engine, service
from bench.cpu.ctranslate2 import Ctranslate2
from bench.cpu.report import Report
from bench.process import serving
from models.package.folder import Package

PARTS = ("engine", "concurrency", "latency", "start")
ZOO = Path(__file__).parent.parent / "models" / "zoo" / "en-pt"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--package", type=Path, default=ZOO, help="what we serve")
    parser.add_argument("--checkpoint", type=Path, default=ZOO, help="what CTranslate2 gets")
    parser.add_argument("--repeats", type=int, default=7, help="readings of each side")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as folder:
        measure(
            arguments.parts or PARTS,
            arguments.package,
            arguments.checkpoint,
            Path(folder) / "ctranslate2",
            arguments.repeats,
        )


def measure(parts: list[str] | tuple[str, ...], path: Path, checkpoint: Path, converted: Path, repeats: int) -> None:
    """Measures the parts, printing the report after each."""
    report = Report(repeats=repeats)
    package, theirs = Package.open(path), Ctranslate2(checkpoint, converted)
    if "engine" in parts:
        report.engine = engine.run(package, theirs, repeats)
        report.write()
    if "start" in parts or "concurrency" in parts:
        start_s = service.measure_start(path, times=5)
        with serving(*service.our_server(path)) as server:
            if "concurrency" in parts:
                report.concurrency = service.measure_concurrency(package, server, theirs, repeats)
            report.footprint = service.Footprint(start_s, server.rss_mb(), server.peak_rss_mb())
        report.write()
    if "latency" in parts:
        peer = service.peer_server(checkpoint, converted)
        with serving(*service.our_server(path)) as ours, serving(*peer) as other:
            report.latency = service.measure_latency(ours, other, rounds=4)
        report.write()
    print(report.markdown())


if __name__ == "__main__":
    main()
