"""`python -m bench.gpu_check`: proves, checks and measures the CUDA path on a bare machine, in eight minutes.

Needs no network. See docs/benchmarks.md. Exit codes: 0 if every part ran to its end; 1 if one failed or was cut; 2 if
nothing could be run.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.flags.values import positive
from bench.gpu import machine, tables, wheels
from bench.gpu.plan import PARTS, SOAK_STARTS_S, Findings, Part, Plan
from bench.gpu.report import Report
from bench.gpu.runner import Interrupted, Outcome, Runner, interruptible

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # nothing is to be fetched, and nobody asked
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # else torch.cuda.is_available starts CUDA, which does not survive a fork
}
TOY_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}  # two threads spend twice the time on so little, waiting for each other
MINUTES, SOAK_MINUTES = 8.0, 2.0
"""What a run and its soak take unless told otherwise."""
TOY_SOAK_S = 2.0
RESULTS = Path(__file__).parent / "results" / "gpu"
WITHOUT_PACKAGES = {"packages", "nllb", "training"}
"""Parts that take none of those that the part `packages` makes."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    options = parse(arguments)
    try:
        if options.wheels is not None:
            wheels.run_with(wheels.install(options.wheels), without(arguments, "--wheels"))
        wheels.require_modules(options.device)
        if any(part.name == "served" for part in options.parts):
            warn_of_the_server()
        return check(options)
    except (wheels.MissingModulesError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"python -m bench.gpu_check: {error}", file=sys.stderr)
        return 2


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_check", description=__doc__, allow_abbrev=False)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="what to check (default: cuda)")
    parser.add_argument("--device-id", type=int, default=0, metavar="N", help="which CUDA device (default: 0)")
    parser.add_argument("--toy", action="store_true", help="everything at a size for tests: the figures say nothing")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="wheels to use, whole or in parts (X.whl.part00)")
    parser.add_argument(
        "--parts", type=part_list, default=PARTS, metavar="NAMES", help="only these, in this order: a,b"
    )
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keeps packages there, and uses those of before")
    parser.add_argument("--soak-minutes", type=positive, default=SOAK_MINUTES, metavar="M", help="of the last part")
    parser.add_argument(
        "--budget-minutes", type=positive, default=MINUTES, metavar="M", help="with a soak of 2 minutes"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go")
    options = parser.parse_args(arguments)
    names = {part.name for part in options.parts}
    if options.work is None and "packages" not in names and (wanting := names - WITHOUT_PACKAGES):
        first = min(wanting, key=[part.name for part in options.parts].index)
        parser.error(
            f"--parts has {first}, and not packages, which it decodes: add that, or --work with those of before"
        )
    return options


def warn_of_the_server() -> None:
    """Says so if the part `served` will fail for lack of a module. The others run nevertheless."""
    try:
        wheels.require_server()
    except wheels.MissingModulesError as error:
        print(f"the part `served` will fail; {error}", file=sys.stderr)


def part_list(names: str) -> tuple[Part, ...]:
    """Those parts. Raises ArgumentTypeError for a name that none has."""
    known = {part.name: part for part in PARTS}
    if unknown := [name for name in names.split(",") if name not in known]:
        raise argparse.ArgumentTypeError(f"no part is called {', '.join(unknown)}; there are {', '.join(known)}")
    return tuple(known[name] for name in names.split(","))


def without(arguments: Sequence[str], option: str) -> list[str]:
    """The arguments without an option and its value."""
    kept = [argument for argument in arguments if not argument.startswith(f"{option}=")]
    if option in kept:
        at = kept.index(option)
        del kept[at : at + 2]
    return kept


def check(options: argparse.Namespace) -> int:
    """Runs all parts. Raises RuntimeError where there is no such device."""
    os.environ |= ENVIRONMENT | (TOY_ENVIRONMENT if options.toy else {})
    soak_s = TOY_SOAK_S if options.toy else 60 * options.soak_minutes
    total_s = 60 * (options.budget_minutes + max(0.0, options.soak_minutes - SOAK_MINUTES))
    options.out.mkdir(parents=True, exist_ok=True)  # a slip is told now, not when the first part has been done
    with work_folder(options.work) as work:
        plan = Plan(options.device, options.device_id, options.toy, work, soak_s)
        report = Report(options.out, plan, machine.facts(plan), {part.name: Outcome() for part in options.parts})
        soak_part_s = soak_s + SOAK_STARTS_S
        runner = Runner(plan, total_s, spared_s=soak_part_s)
        with interruptible():
            try:
                for part in options.parts:
                    budget_s = soak_part_s if part.name == "soak" else part.budget_s * options.budget_minutes / MINUTES
                    run(runner, replace(part, budget_s=budget_s), report)
                    if part.name == "proof" and not decodes(report.outcomes["proof"].findings):
                        runner.plan = replace(plan, cuda_graphs=False)
            except Interrupted as signal:
                print(f"{signal}: ending; what was found is kept", file=sys.stderr)
        report.write()
    print(f"\n{tables.figures(report.figures())}\n\n{report.path}")
    return 0 if all(outcome.status == "done" for outcome in report.outcomes.values()) else 1


@contextlib.contextmanager
def work_folder(kept: Path | None) -> Iterator[Path]:
    """One for checkpoints and packages, gone afterwards unless it is to be kept. Raises OSError."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        yield Path(work)


def decodes(proof: Findings) -> bool:
    """Whether the part `proof` found that decoding works as planned. If not, CUDA graphs are the first to blame."""
    return "error" not in proof.get("probe", {"error": "it did not get so far"})


def run(runner: Runner, part: Part, report: Report) -> None:
    """Runs one part, and says how it went."""
    outcome = report.outcomes[part.name]
    runner.run(part, outcome, report.write)
    print(f"{part.title}: {outcome.status}, {outcome.seconds:.0f} s", flush=True)
    if outcome.error:
        print(f"  {outcome.error}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
