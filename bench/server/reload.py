"""`python -m bench.server.reload`: versions of a package are taken up under load, again and again.

Callers must not notice: every answer is compared with the one that its text got before. Tells how many calls failed,
the slowest call of each reload beside the slowest of as long a time without one, which follows it, beside what a step
takes, and the memory while two versions are loaded, over what it was with one, before the first reload.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.flags.values import package_at, whole
from bench.packages.versions import take
from bench.process import Server, serving
from bench.soak.questions import short_texts
from dragoman.async_client import AsyncClient
from dragoman.errors import DragomanError

ROOT = Path(__file__).parents[2]
TEXTS = 50
PAUSE_S = 1.2
"""After a reload, until the former version has ended."""
LOOK_S = 0.01
"""Between two looks at the memory."""


def main(given: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code: 1 if a call failed, an answer was wrong or a reload was refused."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.reload", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt", help="what is served")
    parser.add_argument("--reloads", type=whole, default=20, help="how many")
    parser.add_argument("--callers", type=whole, default=8, help="each with one call at a time")
    arguments = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as place:
        link = Path(place) / "served"
        take(arguments.package, link, 0)
        settings = ["--package", str(link), "--no-watch-packages", "--log-level", "error"]
        with serving("server", settings) as server:
            return asyncio.run(Run(arguments, server, link).run())


class Run:
    """One run."""

    def __init__(self, arguments: argparse.Namespace, server: Server, link: Path) -> None:
        self._arguments, self._server, self._link = arguments, server, link
        self._ends = Counter[str]()
        self._reloading = self._ended = False
        self._calls: list[Span] = []
        self._reloads: list[Span] = []
        self._calm: list[Span] = []
        """Each as long as the reload before it."""
        self._most_mb = {False: 0.0, True: 0.0}
        self._before_mb = 0.0
        """With one version, under load."""

    async def run(self) -> int:
        """The callers, the reloads, and what came of them."""
        texts = short_texts(TEXTS, seed=0)
        async with AsyncClient(self._server.target) as client:
            alone = {text: (await client.translate(text, no_cache=True)).text for text in texts}
            callers = [asyncio.create_task(self._call(client, alone, seed)) for seed in range(self._arguments.callers)]
            looking = asyncio.create_task(self._look())
            for number in range(1, self._arguments.reloads + 1):
                await asyncio.sleep(PAUSE_S)
                self._before_mb = self._before_mb or self._most_mb[False]
                await asyncio.to_thread(take, self._arguments.package, self._link, number)
                self._reloads.append(reload := await self._reload(client))
                await asyncio.sleep(PAUSE_S)
                self._calm.append(Span(now := time.perf_counter(), now + reload.seconds))
                await asyncio.sleep(reload.seconds)
            self._ended = True
            await asyncio.gather(*callers, looking)
        self._tell()
        return 0 if set(self._ends) == {"answered"} else 1

    async def _reload(self, client: AsyncClient) -> "Span":
        self._reloading, began_s = True, time.perf_counter()
        try:
            await client.reload()
        except DragomanError as error:
            self._ends[f"reload: {error}"] += 1
        self._reloading = False
        return Span(began_s, time.perf_counter())

    async def _call(self, client: AsyncClient, alone: Mapping[str, str], seed: int) -> None:
        draw, texts = random.Random(seed), list(alone)
        while not self._ended:
            text, began_s = draw.choice(texts), time.perf_counter()
            try:
                right = (await client.translate(text, no_cache=True)).text == alone[text]
            except DragomanError as error:
                self._ends[f"{type(error).__name__} {error.reason}: {error}"] += 1
                continue
            self._ends["answered" if right else "wrong answer"] += 1
            self._calls.append(Span(began_s, time.perf_counter()))

    async def _look(self) -> None:
        while not self._ended:
            self._most_mb[self._reloading] = max(self._most_mb[self._reloading], self._server.rss_mb())
            await asyncio.sleep(LOOK_S)

    def _step_s(self) -> float:
        """Of a worker, in the mean, with the encoder runs before it."""
        seconds, steps = (self._server.counted(f"dragoman_inter_token_seconds_{part}") for part in ("sum", "count"))
        return seconds / steps

    def _tell(self) -> None:
        longest_s = max(reload.seconds for reload in self._reloads)
        print(f"{self._ends.total()} calls, {len(self._reloads)} reloads of {longest_s:.1f} s at most")
        slowest = [[self._slowest_ms(span) for span in spans] for spans in (self._calm, self._reloads)]
        for when, each, reloading in zip(("without a reload", "during reloads"), slowest, (False, True), strict=True):
            told = f"{when}: the slowest call {median(each):.0f} ms in the median, {max(each):.0f} at most"
            print(f"{told}; at most {self._most_mb[reloading]:.0f} MB resident")
        calm, reloads = slowest
        added = f"{median(reloads) - median(calm):.0f} ms in the median, {max(reloads) - max(calm):.0f} of all"
        print(f"the slowest call took longer by {added}; a step took {1000 * self._step_s():.1f} ms")
        ratio = self._most_mb[True] / self._before_mb
        print(f"memory: {self._before_mb:.0f} MB before the first reload, {ratio:.2f} x during reloads")
        for end, count in self._ends.most_common():
            print(f"{count:8} {end}")

    def _slowest_ms(self, span: "Span") -> float:
        """Of the calls that were under way in it."""
        return 1000 * max((call.seconds for call in self._calls if call.overlaps(span)), default=0.0)


@dataclass(frozen=True, slots=True)
class Span:
    """From one moment to another."""

    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s

    def overlaps(self, other: "Span") -> bool:
        """Whether they have some time in common."""
        return self.began_s < other.ended_s and other.began_s < self.ended_s


if __name__ == "__main__":
    sys.exit(main())
