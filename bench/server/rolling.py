"""`python -m bench.server.rolling`: two servers are restarted in turn, again and again; callers must not notice.

The project's own client has both as targets. Every answer is compared with the one that its text got before.
"""

import argparse
import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.flags.values import package_at, whole
from bench.process import Server, free_port, serving
from bench.soak.questions import short_texts
from dragoman.async_client import AsyncClient
from dragoman.errors import DragomanError

ROOT = Path(__file__).parents[2]
TEXTS = 50
NEW_TOKENS = 8
DEADLINE_S = 30.0
PAUSE_S = 1.0
"""With both servers there, before the next one goes."""


def main(given: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code: 1 if a call failed or an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.rolling", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt", help="what is served")
    parser.add_argument("--calls", type=whole, default=10_000, help="how many are made, at least")
    parser.add_argument("--callers", type=whole, default=32, help="of them at a time")
    parser.add_argument("--kill", action="store_true", help="servers get SIGKILL, not SIGTERM")
    arguments = parser.parse_args(given)
    rolling = Rolling(arguments)
    with ExitStack() as servers:
        return asyncio.run(rolling.run(servers))


class Rolling:
    """One run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._ports = [free_port(), free_port()]
        self._left = arguments.calls
        self._ends = Counter[str]()
        self._seconds: list[float] = []
        """Of the calls that were answered."""
        self._restarts, self._away_s = 0, 0.0

    async def run(self, opened: ExitStack) -> int:
        """Both servers, the callers, and the restarts."""
        servers = {port: (stack := opened.enter_context(ExitStack()), self._start(port, stack)) for port in self._ports}
        texts = short_texts(TEXTS, seed=0)
        async with AsyncClient([f"127.0.0.1:{port}" for port in self._ports]) as client:
            alone = {text: await self._translate(client, text) for text in texts}
            began_s = time.perf_counter()
            callers = [asyncio.create_task(self._call(client, alone, seed)) for seed in range(self._arguments.callers)]
            done = asyncio.gather(*callers)
            while not done.done():
                for port, (stack, server) in servers.items():
                    await asyncio.sleep(PAUSE_S)
                    if done.done():
                        break
                    servers[port] = stack, await asyncio.to_thread(self._restart, port, stack, server)
            await done
        self._tell(time.perf_counter() - began_s)
        return 0 if set(self._ends) == {"answered"} else 1

    def _start(self, port: int, stack: ExitStack) -> Server:
        arguments = ["--package", str(self._arguments.package), "--log-level", "error"]
        return stack.enter_context(serving("server", arguments, port))

    def _restart(self, port: int, stack: ExitStack, server: Server) -> Server:
        began_s = time.perf_counter()
        server.process.send_signal(signal.SIGKILL if self._arguments.kill else signal.SIGTERM)
        stack.close()
        again = self._start(port, stack)
        self._restarts += 1
        self._away_s += time.perf_counter() - began_s
        return again

    async def _call(self, client: AsyncClient, alone: Mapping[str, str], seed: int) -> None:
        draw, texts = random.Random(seed), list(alone)
        while self._left > 0 or not self._restarts:
            self._left -= 1
            text, began_s = draw.choice(texts), time.perf_counter()
            try:
                right = await self._translate(client, text, no_cache=draw.random() < 0.5) == alone[text]
            except DragomanError as error:
                self._ends[f"{type(error).__name__} {error.reason}: {error}"] += 1
            else:
                self._ends["answered" if right else "wrong answer"] += 1
                self._seconds.append(time.perf_counter() - began_s)

    @staticmethod
    async def _translate(client: AsyncClient, text: str, no_cache: bool = True) -> str:
        translation = await client.translate(text, timeout_s=DEADLINE_S, max_new_tokens=NEW_TOKENS, no_cache=no_cache)
        return translation.text

    def _tell(self, seconds: float) -> None:
        calls = self._ends.total()
        how, away_s = "killed" if self._arguments.kill else "restarted", self._away_s / max(1, self._restarts)
        print(f"{calls} calls in {seconds:.0f} s, by {self._arguments.callers} callers")
        print(f"servers {how} {self._restarts} times, each away for {away_s:.1f} s")
        print(f"slowest call that was answered {max(self._seconds, default=0):.1f} s")
        for end, count in self._ends.most_common():
            print(f"{count:8} {end}")


if __name__ == "__main__":
    sys.exit(main())
