"""`python -m bench.server.metrics`: what metrics cost. See docs/benchmarks.md.

The sides of a comparison take turns in one run. Beside each ratio stands what the same costs by itself, measured
without an engine: on a machine that does other things too, that is the steadier figure.
"""

import argparse
import asyncio
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from bench.cpu.sides.ours import OurEngine, translate_all
from bench.flags.values import package_at, whole
from bench.measure import Series, alternate
from bench.process import leave_at_sigterm
from bench.sentences import english
from engine.request import FinishReason, Timings
from models.package.folder import Package
from server.config import Settings
from server.telemetry.exposition.endpoint import metrics_endpoint
from server.telemetry.exposition.page import OPENMETRICS, Page
from server.telemetry.metrics.call import CallMetrics
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from server.telemetry.metrics.process import ProcessMetrics

ROOT = Path(__file__).parents[2]
MODELS = 5
METHODS, CODES = 5, 9
"""Of the API, and of all answers that a call can get."""
ROWS = 8
SCRAPE_INTERVAL_S = 1.0
"""Fifteen times as often as Prometheus does by default."""
PROMETHEUS_INTERVAL_S = 15.0
SCRAPER = """
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1]).read()
    time.sleep(float(sys.argv[2]))
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.metrics", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt", help="what is decoded")
    parser.add_argument("--repeats", type=whole, default=5, help="readings of each side")
    parser.add_argument("--sentences", type=whole, default=160, help="of each reading")
    arguments = parser.parse_args()
    page()
    engine = OurEngine(Package.open(arguments.package))
    sources = [engine.tokenizer.encode(text) for text in english(arguments.sentences)]
    step_s = counting(engine, sources, arguments.repeats)
    print(f"counting by itself: {micros(one_step):.1f} us a step, of {step_s * 1e6:.0f} us that a step of {ROWS} takes")
    scraping(engine, sources, arguments.repeats)


# The page


class Models(Collector):
    """The metrics of several models on one page, as a server of all of them would have them."""

    def __init__(self, codes: int) -> None:
        """Every method has been answered with so many codes."""
        self._registry = CollectorRegistry()
        families, calls = ModelFamilies(self._registry), CallMetrics(self._registry)
        for number, worker in product(range(MODELS), range(2)):
            ModelMetrics(families, f"model-{number}").worker(worker).steps(1, ROWS, 0.001, 0.001)
        for method, code in product(range(METHODS), range(codes)):
            calls.rpc_started(f"dragoman.v1.TranslationService/Translate{method}")
            calls.rpc_finished(f"dragoman.v1.TranslationService/Translate{method}", f"CODE_{code}", 0.01)
        ProcessMetrics(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()


def page() -> None:
    """How long a page of several models takes to make, and to fetch."""
    for codes in (1, CODES):
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Models(codes))
        series = sum(len(family.samples) for family in registry.collect())
        ours = processor_seconds(partial(Page(registry).write, openmetrics=True))
        theirs = processor_seconds(partial(generate_latest, registry))
        with metrics_endpoint(Settings(metrics_port=0), registry) as metrics:
            fetched = least(partial(fetch, f"http://127.0.0.1:{metrics.port}/metrics"), 3)
        print(
            f"page of {MODELS} models, {codes} codes for each method, {series} series: "
            f"{ours * 1e3:.1f} ms of a core (prometheus_client: {theirs * 1e3:.1f}), fetched in {fetched * 1e3:.1f} ms"
        )


def fetch(url: str) -> bytes:
    """The page, as Prometheus asks for it."""
    request = urllib.request.Request(url, headers={"Accept": OPENMETRICS})
    with urllib.request.urlopen(request) as page:
        body: bytes = page.read()
    return body


def least(work: Callable[[], object], times: int) -> float:
    """The shortest of some times, in seconds: the one that other work on the machine disturbed least."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


# Counting


def counting(engine: OurEngine, sources: list[list[int]], repeats: int) -> float:
    """Tokens a second with metrics and without. Returns the seconds of a step."""
    registry = CollectorRegistry()
    decoding = engine.decoding(num_beams=1)
    with (
        engine.open(ROWS, ModelMetrics(ModelFamilies(registry), "default")) as counted,
        engine.open(ROWS) as uncounted,
    ):
        sides = {
            "counted": lambda: rate(lambda: translate_all(counted, engine.rules, sources, decoding)),
            "uncounted": lambda: rate(lambda: translate_all(uncounted, engine.rules, sources, decoding)),
        }
        readings = alternate(sides, repeats)
    tell("counting", readings["counted"], readings["uncounted"])
    steps = registry.get_sample_value("dragoman_steps_total", {"model": "default"}) or 1
    parts = (registry.get_sample_value("dragoman_step_seconds_total", {"model": "default", "part": p}) for p in PARTS)
    return sum(seconds or 0 for seconds in parts) / steps


PARTS = ("model", "engine")
TIMINGS = Timings(0.001, 0.001, 0.01, 20, 8.0)


def one_step() -> Callable[[], None]:
    """What is counted at a step in which one of 20 contents ends."""
    metrics = ModelMetrics(ModelFamilies(CollectorRegistry()), "default")
    worker = metrics.worker(0)

    def work() -> None:
        for step in range(20):
            worker.steps(1, ROWS, 0.001, 0.0009)
            worker.inter_token(0.001, 1)
            worker.holds(ROWS, 200)
            if step == 0:
                worker.encoded(20, 20)
                metrics.first_token(0.01)
                metrics.finished(FinishReason.END_TOKEN, TIMINGS, 20, 20)
                worker.answered(20, 20)

    return work


def micros(make: Callable[[], Callable[[], None]]) -> float:
    """Microseconds of each of the 20 steps."""
    return least(make(), 200) / 20 * 1e6


# Scraping


def scraping(engine: OurEngine, sources: list[list[int]], repeats: int) -> None:
    """Tokens a second, and the delay of an event loop, while another process scrapes and while none does."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Models(codes=CODES))
    decoding = engine.decoding(num_beams=1)
    with (
        metrics_endpoint(Settings(metrics_port=0), registry) as metrics,
        engine.open(ROWS) as runner,
    ):
        url = f"http://127.0.0.1:{metrics.port}/metrics"

        def quiet() -> float:
            return rate(lambda: translate_all(runner, engine.rules, sources, decoding))

        def scraped() -> float:
            with scraper(url):
                return quiet()

        readings = alternate({"scraped": scraped, "quiet": quiet}, repeats)
        tell(f"a scrape every {SCRAPE_INTERVAL_S:g} s", readings["scraped"], readings["quiet"])
        delays = alternate({"scraped": lambda: delay(url), "quiet": lambda: delay(None)}, repeats)
    cpu = processor_seconds(partial(Page(registry).write, openmetrics=True))
    print(f"a page takes {cpu * 1e3:.1f} ms of a core, {cpu / PROMETHEUS_INTERVAL_S:.3%} at one in 15 s")
    for side, series in delays.items():
        print(f"longest delay of an event loop, {side}: {series.median * 1e3:.1f} ms (median of {len(series.values)})")


@contextmanager
def scraper(url: str) -> Iterator[None]:
    """A process that scrapes until the block ends."""
    leave_at_sigterm()
    process = subprocess.Popen([sys.executable, "-c", SCRAPER, url, str(SCRAPE_INTERVAL_S)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def delay(url: str | None) -> float:
    """The most by which an event loop was late in a second, while the page is fetched over and over, or is not."""
    done = threading.Event()

    def fetch_on(page: str) -> None:
        while not done.is_set():
            fetch(page)

    async def watch() -> float:
        worst, ended = 0.0, time.perf_counter() + 1
        while (before := time.perf_counter()) < ended:
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - before - 0.001)
        return worst

    fetching = [threading.Thread(target=fetch_on, args=(url,))] if url else []
    for thread in fetching:
        thread.start()
    worst = asyncio.run(watch())
    done.set()
    for thread in fetching:
        thread.join()
    return worst


def processor_seconds(work: Callable[[], object], times: int = 50) -> float:
    """Of this thread, the least of some tries."""
    seconds = []
    for _ in range(times):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds)


# Figures


def rate(translate: Callable[[], int]) -> float:
    """Tokens a second."""
    started = time.perf_counter()
    return translate() / (time.perf_counter() - started)


def tell(what: str, with_it: Series, without: Series) -> None:
    """The ratio of both sides: of the medians, and turn by turn."""
    turns = [one / other for one, other in zip(with_it.values, without.values, strict=True)]
    print(
        f"{what}: {with_it.median:.0f} against {without.median:.0f} tokens/s, "
        f"ratio {with_it.median / without.median:.4f} (turn by turn {', '.join(f'{ratio:.3f}' for ratio in turns)})"
    )


if __name__ == "__main__":
    main()
