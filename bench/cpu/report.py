"""Results as Markdown and JSON, with the machine named."""

import datetime
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from bench.cpu.engine import Result
from bench.cpu.service import Concurrency, Footprint, Latency
from bench.markdown import file_name, join, machine, processors, table, verdict

RESULTS = Path(__file__).parents[1] / "results"
LIBRARIES = ("onnxruntime", "ctranslate2", "grpcio", "numpy")


def versions() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


class Report(BaseModel):
    """What was measured so far. Written after every part, so that an interrupted run keeps what it has."""

    model_config = ConfigDict(extra="forbid")

    date: datetime.date = Field(default_factory=datetime.date.today)
    machine: str = Field(default_factory=machine)
    versions: dict[str, str] = Field(default_factory=versions)
    repeats: int
    engine: list[Result] | None = None
    concurrency: Concurrency | None = None
    latency: Latency | None = None
    footprint: Footprint | None = None

    def write(self, folder: Path = RESULTS) -> Path:
        """Writes both files. Returns the Markdown one, which holds nothing that the JSON does not."""
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.date.isoformat()}-{file_name(processors()[0])}.md"
        path.write_text(self.markdown(), encoding="utf-8")
        path.with_suffix(".json").write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path

    def markdown(self) -> str:
        """All parts that were measured."""
        parts = [f"# {self.date.isoformat()}, {self.machine}", join(self.versions)]
        parts.append(
            f"Both sides: models/zoo/en-pt, fp32, 2 workers of 1 thread. Sides alternate; medians of {self.repeats}. "
            "Ratios above 1 are in our favour, except for latency, where below 1 is."
        )
        if self.engine:
            parts.append(_engine_table(self.engine))
        if self.concurrency:
            parts.append(_concurrency_table(self.concurrency))
        if self.latency:
            parts.append(_latency_table(self.latency))
        if self.footprint:
            parts.append(_footprint_table(self.footprint))
        return "\n\n".join(parts) + "\n"


def _engine_table(results: list[Result]) -> str:
    rows = [
        [
            "greedy" if result.cell.num_beams == 1 else f"beam {result.cell.num_beams}",
            str(result.cell.batch),
            f"{result.ours:.0f}",
            f"{result.theirs:.0f}",
            f"{result.ratio:.2f} x",
            f"{result.cell.target} x",
            verdict(result.ratio >= result.cell.target),
        ]
        for result in results
    ]
    header = ["engine", "sentences per worker", "ours tokens/s", "CTranslate2 tokens/s", "ratio", "asked", ""]
    return table(header, rows)


def _concurrency_table(result: Concurrency) -> str:
    calls = result.calls
    sides = (
        ("CTranslate2 translate_batch, offline, batch 32", result.offline, 1.0),
        ("the engine alone, 32 outstanding", result.engine, 0.85),
    )
    rows = [
        [name, f"{rate:.1f}", f"{calls / rate:.2f} x", f"{asked} x", verdict(calls / rate >= asked)]
        for name, rate, asked in sides
    ]
    title = f"32 concurrent Translate calls: {calls:.1f} sentences/s, against"
    return table([title, "sentences/s", "ratio", "asked", ""], rows)


def _latency_table(result: Latency) -> str:
    rows = []
    sides = result.ours, result.theirs
    for name, asked, seconds in (
        ("p50", 1 / 2, [side.p50_s for side in sides]),
        ("p99", 2 / 3, [side.p99_s for side in sides]),
    ):
        ours, theirs = (1000 * value for value in seconds)
        ratio = ours / theirs
        rows.append([name, f"{ours:.0f}", f"{theirs:.0f}", f"{ratio:.2f}", f"{asked:.2f}", verdict(ratio <= asked)])
    header = [
        f"Poisson arrivals, {result.rate:.0f} calls/s",
        "ours ms",
        "CTranslate2 + batcher ms",
        "ratio",
        "asked",
        "",
    ]
    return table(header, rows)


def _footprint_table(result: Footprint) -> str:
    rows = [
        ["resident memory after load, MB", f"{result.rss_mb:.0f}", "500", verdict(result.rss_mb <= 500)],
        ["largest resident memory, MB", f"{result.peak_rss_mb:.0f}", "500", verdict(result.peak_rss_mb <= 500)],
        ["start to SERVING, s", f"{result.start_s:.2f}", "3", verdict(result.start_s <= 3)],
    ]
    return table(["server", "measured", "asked at most", ""], rows)
