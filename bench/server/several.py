"""`python -m bench.server.several`: what one model loses to another on the same cores. See docs/benchmarks.md.

All sides take turns in one run: a model alone, beside one that is idle, and beside one that computes as much. On a
machine that does other things too, tokens for a second of processor time are the steadier figure.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bench.flags.values import package_at, whole
from bench.measure import alternate
from bench.sentences import english
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, Plan, load, load_all
from engine.observer import Unobserved
from engine.offline import decode
from engine.runner import Runner
from engine.supervision.policy import UNSUPERVISED
from models.decoding import Decoding
from models.package.folder import Package

ZOO = Path(__file__).parents[2] / "models" / "zoo"
ALONE, IDLE, BUSY = "alone", "beside an idle one", "beside a busy one"
GREEDY = Decoding(1, 1, 128, 1.0, False)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.several", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ZOO / "en-pt", help="the model that is measured")
    parser.add_argument("--beside", type=package_at, default=ZOO / "pt-en", help="the other one")
    parser.add_argument("--workers", type=whole, default=2, help="threads, of every model")
    parser.add_argument("--rows", type=whole, default=8, help="of each worker's running batch")
    parser.add_argument("--repeats", type=whole, default=9, help="readings of each side")
    parser.add_argument("--processor-time", action="store_true", help="tokens for a second of that, not of the clock")
    parser.add_argument("--sentences", type=whole, default=64, help="of each reading")
    arguments = parser.parse_args()
    packages = [Package.open(arguments.package), Package.open(arguments.beside)]
    limits = Limits(arguments.rows, arguments.workers, 128, 128)
    clock = time.process_time if arguments.processor_time else time.perf_counter
    models = [Loadable.of(package) for package in packages]
    work = [_work(package, english(arguments.sentences)) for package in packages]
    with ExitStack() as running, ThreadPoolExecutor(1) as other:
        alone = running.enter_context(load(models[0], CPU, limits))
        plans = [Plan(model, limits, Unobserved()) for model in models]
        both = [running.enter_context(one) for one in load_all(plans, CPU, None, "auto", UNSUPERVISED)]

        def busy() -> float:
            beside = other.submit(work[1], both[1])
            rate = _rate(work[0], both[0], clock)
            beside.result()
            return rate

        sides = {ALONE: lambda: _rate(work[0], alone, clock), IDLE: lambda: _rate(work[0], both[0], clock)}
        if not arguments.processor_time:  # of which the process has one sum for all models
            sides[BUSY] = busy
        readings = alternate(sides, arguments.repeats)
    for name, series in readings.items():
        ratios = sorted(one / two for one, two in zip(series.values, readings[ALONE].values, strict=True))
        middle = ratios[len(ratios) // 2]
        print(
            f"{name}: {series.median:.0f} target tokens/s; to {ALONE}, reading by reading: {middle:.3f} x "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


def _work(package: Package, texts: Sequence[str]) -> Callable[[Runner], int]:
    """Decodes the texts and tells how many target tokens they have."""
    tokenizer, rules = package.tokenizer(), Loadable.of(package).rules
    asked = [(tuple(tokenizer.encode(text)), GREEDY) for text in texts]
    return lambda runner: sum(len(one.hypotheses[0].token_ids) for one in decode(runner, rules, asked))


def _rate(work: Callable[[Runner], int], runner: Runner, clock: Callable[[], float]) -> float:
    began = clock()
    tokens = work(runner)
    return tokens / (clock() - began)


if __name__ == "__main__":
    main()
