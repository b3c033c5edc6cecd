"""`python -m bench`: measures this project against other engines on this machine. See docs/benchmarks.md."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from bench.cpu import curves, plan, races, random_models, service, steps
from bench.cpu.plan import Models
from bench.cpu.report import Report
from bench.cpu.sides.ctranslate2 import EXAMPLES, SAME, SETUPS
from bench.cpu.tables import how
from bench.cpu.turns import SPAWN, players
from bench.cpu.work import Side
from bench.firefox import compared, lexicon
from bench.flags.values import folder_at, folder_to_fill, package_at, positive, whole
from bench.machine.noise import Watch
from bench.machine.peak import measure_peaks
from bench.packages.families import LARGE_VOCABULARY, NLLB_600M, T5_SMALL, FamilyShape
from bench.packages.shapes import BASE
from bench.packages.shortlisted import make_shortlisted
from bench.sentences import english, heldout
from dragoman.command.flags.parsing import Outspoken, answered

ROOT = Path(__file__).parent.parent
ZOO = ROOT / "models" / "zoo" / "en-pt"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Run:
    """A run of some parts."""

    report: Report
    models: Models
    work: Path
    """A folder for models of random weights."""
    watch: Watch
    repeats: int
    """Turns of each side."""
    sides: tuple[str, ...] = ()
    """Of the race of decoding, and of ours in those of families. None: all."""

    @property
    def quick(self) -> bool:
        return self.report.quick

    def add(self, part: str, found: Iterator[races.Race]) -> None:
        """Puts races into the report as they end."""
        for race in found:
            self.report.add(part, race)
            self.save()

    def chosen(self, sides: Iterable[Side]) -> list[Side]:
        """Those of them that are to run."""
        return [side for side in sides if not self.sides or side.name in self.sides]

    def add_steps(self, found: steps.Floor) -> None:
        """Puts steps and their floors into the report."""
        self.report.floor = found if self.report.floor is None else self.report.floor.joined(found)
        self.save()

    def make_shortlisted(self) -> None:
        """The package that the peer with a shortlist stands against."""
        make_shortlisted(self.models.checkpoint, self.models.lexicon, self.models.int8_shortlist)

    def save(self) -> None:
        self.watch.pause()
        self.report.noise = self.watch.noise()
        print(f"{self.report.write()} has what was measured so far", flush=True)


def decoding(run: Run) -> None:
    """All engines, token ids in and out."""
    ours = run.chosen(plan.our_sides(run.models))
    if any(side.name == plan.INT8_SHORTLIST for side in ours):
        run.make_shortlisted()
    others = [] if run.quick else plan.other_sides(run.models)
    theirs = run.chosen([*plan.ctranslate2_sides(run.models, SAME if run.quick else SETUPS), *others])
    cells = plan.QUICK_CELLS if run.quick else plan.CELLS
    with players([*ours, *theirs], run.report.absent) as opened:
        run.add("decoding", races.decoding(opened, cells, plan.PAIRS, run.repeats))


def apart(make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Makes something in a process of its own, whose memory is given back: models may be large."""
    with ProcessPoolExecutor(1, SPAWN) as process:
        return process.submit(make, *arguments, **named).result()


def base(run: Run) -> None:
    """OPUS-MT's base size."""
    models = apart(random_models.make, BASE, run.work / "base", ZOO)
    sides = [*plan.our_sides(models), *plan.ctranslate2_sides(models, EXAMPLES)]
    cells = plan.BASE_CELLS[:2] if run.quick else plan.BASE_CELLS
    lengths = random_models.RealLengths(ZOO)
    with players(sides, {}) as opened:
        run.add("base", races.to_length(opened, cells, plan.BASE_PAIRS, run.repeats, lengths))


def t5(run: Run) -> None:
    """Another family's size."""
    family(run, "t5", T5_SMALL, plan.QUICK_FAMILY_CELLS if run.quick else plan.FAMILY_CELLS)


def nllb(run: Run) -> None:
    """A size of which a turn takes long."""
    family(run, "nllb", NLLB_600M, plan.LARGE_CELLS, plan.LARGE_LENGTH)


def vocabulary(run: Run) -> None:
    """Little but an output layer of 256,204 tokens, and what a step of it takes."""
    family(run, "vocabulary", LARGE_VOCABULARY, plan.LARGE_CELLS, plan.LARGE_LENGTH)
    folder = run.work / "vocabulary"
    run.add_steps(
        steps.measure(
            [
                ("fp32, 256,204 tokens", folder / "fp32", "fp32", "required"),
                ("int8, 256,204 tokens", folder / "int8", "int8", "required"),
            ]
        )
    )


def family(run: Run, part: str, shape: FamilyShape, cells: Sequence[plan.Cell], longest: int | None = None) -> None:
    """Only the two sides of a pair are in memory at a time."""
    models = apart(random_models.make_family, shape, run.work / part, ZOO)
    setups = SAME if run.quick else EXAMPLES
    sides = {side.name: side for side in plan.family_sides(models, setups)}
    lengths = random_models.RealLengths(ZOO, longest)
    for pair in plan.FAMILY_PAIRS:
        if not run.chosen([sides[pair.ours]]):
            continue
        with players([sides[pair.ours], sides[pair.theirs]], run.report.absent) as opened:
            run.add(part, races.to_length(opened, cells, [pair], run.repeats, lengths))


def file(run: Run) -> None:
    """From text to text."""
    run.make_shortlisted()
    sides = [*plan.our_sides(run.models), *plan.ctranslate2_sides(run.models)]
    texts = english(200 if run.quick else 1504)
    with players(sides, {}) as opened:
        run.add("file", iter([races.file(opened, texts, plan.PAIRS, run.repeats)]))


def firefox(run: Run) -> None:
    """Firefox's models, through us and through engines made for them."""
    sides, pairs = compared(run.work)
    texts = heldout()[: 60 if run.quick else 507]
    with players([replace(side, cores=1) for side in sides], run.report.absent) as opened:
        run.add("firefox", iter([races.sentences(opened, texts, pairs, run.repeats)]))


def concurrency(run: Run) -> None:
    """Calls at once."""
    callers = service.CALLERS[:1] if run.quick else service.CALLERS
    for one in service.opposed(run.models):
        run.add("concurrency", service.concurrency(run.models, one, callers, run.repeats))


def latency(run: Run) -> None:
    """Calls that arrive by chance."""
    rounds, seconds = (1, 8.0) if run.quick else (4, 20.0)
    for one in service.opposed(run.models):
        for found in service.latency(run.models, one, ("Poisson", "bursts"), rounds, seconds):
            run.report.latency.append(found)
            run.save()


def start(run: Run) -> None:
    """Memory and start."""
    for one in service.opposed(run.models):
        for http in (False, True):
            run.report.footprints.append(service.footprint(one, 1 if run.quick else 5, http))
        run.save()


def measure_floor(run: Run) -> None:
    """The machine's, and our steps."""
    models = run.models
    run.add_steps(
        steps.measure(
            [
                (plan.FP32_STANDARD, models.fp32, "fp32", "off"),
                (plan.FP32, models.fp32, "fp32", "required"),
                (plan.INT8_STANDARD, models.int8, "int8", "off"),
                (plan.INT8, models.int8, "int8", "required"),
            ]
        )
    )


def measure_curves(run: Run) -> None:
    """What a token costs."""
    peaks = measure_peaks() if run.report.floor is None else run.report.floor.peaks
    for curve in curves.measure(ZOO, peaks):
        run.report.curves.append(curve)
        run.save()


PARTS: dict[str, Callable[[Run], None]] = {
    "decoding": decoding,
    "floor": measure_floor,
    "concurrency": concurrency,
    "latency": latency,
    "start": start,
    "file": file,
    "firefox": firefox,
    "base": base,
    "t5": t5,
    "nllb": nllb,
    "vocabulary": vocabulary,
    "curves": measure_curves,
}
QUICK = ("decoding", "floor", "concurrency", "latency", "start", "file")


def main() -> int:
    """Command line. Returns the exit code."""
    arguments = parse()
    watch = Watch()
    watch.pause()
    with tempfile.TemporaryDirectory() as folder:
        models = Models(
            checkpoint=arguments.checkpoint,
            fp32=arguments.package,
            int8=arguments.int8,
            int8_shortlist=arguments.int8_shortlist,
            converted=Path(folder) / "ctranslate2",
            lexicon=lexicon("en-pt") if arguments.checkpoint == ZOO else None,
            optimum=arguments.optimum,
        )
        repeats = arguments.repeats or (3 if arguments.quick else 7)
        report = Report(
            how=how(repeats, arguments.quick),
            quick=arguments.quick,
            parts=tuple(arguments.parts),
            sides=tuple(arguments.side),
            core_hour=arguments.core_hour,
        )
        run = Run(report, models, arguments.work or Path(folder), watch, repeats, report.sides)
        for part in arguments.parts or (QUICK if arguments.quick else PARTS):
            PARTS[part](run)
    if arguments.plots is not None:
        report.plot(arguments.plots)
    print(report.markdown())
    return 0


def parse() -> argparse.Namespace:
    """Exits the process for wrong usage, and for `--help`."""
    parser = Outspoken(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="less of everything, in some five minutes")
    parser.add_argument("--package", type=package_at, default=ZOO, help="our package in fp32")
    parser.add_argument("--int8", type=package_at, default=ZOO.with_name("en-pt-int8"), help="our package in int8")
    parser.add_argument(
        "--int8-shortlist", type=Path, default=ROOT / "artifacts" / "en-pt-int8-shortlist", help="with a shortlist"
    )
    parser.add_argument("--checkpoint", type=folder_at, default=ZOO, help="what the other engines get")
    parser.add_argument("--optimum", metavar="FOLDER", help="where optimum-onnx is, if not where everything else is")
    parser.add_argument("--work", type=folder_to_fill, metavar="FOLDER", help="where models of random weights are kept")
    parser.add_argument("--repeats", type=whole, help="turns of each side (default: 7; quick: 3)")
    parser.add_argument(
        "--side",
        action="append",
        default=[],
        choices=plan.SIDES,
        metavar="NAME",
        help="only this one; may be repeated. Of t5, nllb and vocabulary, the one of ours with its peer. "
        f"Decoding has: {'; '.join(plan.SIDES)}",
    )
    parser.add_argument("--core-hour", type=positive, default=0.04, help="price of a core for an hour (default: 0.04)")
    parser.add_argument(
        "--plots", type=folder_to_fill, metavar="FOLDER", help="draw speed.svg and cost-curves.svg there"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(answered(main, "python -m bench"))
