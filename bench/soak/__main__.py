"""Command line of the soak."""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from grpc import aio

from bench.flags.values import new_file, package_at, positive, whole
from bench.pages.markdown import machine
from bench.process import Server, or_exit, serving
from bench.soak.callers import OF_ENGINES, Callers
from bench.soak.questions import Alone, Metadata, answers_alone, texts_of_all_lengths
from bench.soak.report import Reading, Report
from bench.soak.strangers import attack
from server.identity.tokens import new_token, token_hash

ROOT = Path(__file__).parents[2]
TEXTS = 60
CALLERS = ("reports", "chat", "batch")
STRANGERS = 3
"""Attacks at a time."""
READINGS = 40
RELOADS_S = 5.0
"""Between two times that the file of callers is written and read again."""
RESTARTS = 1_000_000
"""Of engines that may be: they are to fail."""
LEAVE_S = 60.0
"""In which a server has to get rid of what nobody waits for."""
FAILURES = ("INTERNAL", "UNKNOWN")
LEFT = ("dragoman_rows_live", "dragoman_requests_waiting", "dragoman_rpc_in_flight")


def main(given: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if anything was not as it has to be. Exits with 2 where no server serves."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="A server under every kind of caller.")
    parser.add_argument("--package", type=package_at, default=ROOT / "models" / "zoo" / "en-pt", help="what is served")
    parser.add_argument("--hours", type=positive, default=0.01, help="how long")
    parser.add_argument("--callers", type=whole, default=48, help="calls at a time")
    parser.add_argument("--seed", type=int, default=0, help="of what is left to chance")
    parser.add_argument(
        "--faults",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the engine crashes, hangs and finds no memory, too",
    )
    parser.add_argument("--json", type=new_file, help="file to write the report to")
    parser.add_argument("server", nargs="*", help="more arguments of the server, after --")
    arguments = parser.parse_args(given)
    with TemporaryDirectory() as folder, or_exit(parser):
        report = soak(arguments, Path(folder) / "callers.toml")
    print(report.markdown(), flush=True)  # before the file, which may be what cannot be written
    if arguments.json:
        arguments.json.write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return 0 if report.well else 1


def soak(arguments: argparse.Namespace, callers_file: Path) -> Report:
    """Runs a server, and all that there is against it."""
    tokens = {name: new_token() for name in CALLERS}
    write(callers_file, tokens)
    package = ["--package", str(arguments.package), "--log-level", "error", *arguments.server]
    with serving("server", package) as well:
        alone = asyncio.run(alone_on(well.target, arguments.seed))
    module = "bench.soak.faulty_server" if arguments.faults else "server"
    with serving(module, [*package, "--callers", str(callers_file), "--engine-restarts", str(RESTARTS)]) as server:
        return asyncio.run(Soak(server, arguments, alone, callers_file, tokens).run())


async def alone_on(target: str, seed: int) -> Alone:
    """What a server answers to each text, one after the other."""
    async with aio.insecure_channel(target) as channel:
        return await answers_alone(channel, texts_of_all_lengths(TEXTS, seed))


def write(file: Path, tokens: dict[str, str]) -> None:
    """The callers, and one whom nobody knows, so that each file is another."""
    named = {**tokens, "nobody": new_token()}
    lines = [f'[callers.{name}]\ntokens = ["{token_hash(token)}"]\n' for name, token in named.items()]
    file.write_text("".join(lines), encoding="utf-8")


class Soak:
    """One run."""

    def __init__(
        self, server: Server, arguments: argparse.Namespace, alone: Alone, file: Path, tokens: dict[str, str]
    ) -> None:
        """alone: what callers ask, and its answers. file: that of the callers, whose tokens these are."""
        self._server, self._arguments, self._alone, self._file, self._tokens = server, arguments, alone, file, tokens
        self._readings: list[Reading] = []
        self._reloads = 0
        self._ends_s = 0.0

    async def run(self) -> Report:
        """All of it."""
        server, arguments = self._server, self._arguments
        metadata: list[Metadata] = [(("authorization", f"Bearer {token}"),) for token in self._tokens.values()]
        callers = Callers(server.target, self._alone, arguments.seed, metadata)
        began_s = time.monotonic()
        self._ends_s = began_s + arguments.hours * 3600
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(callers.run(arguments.callers, self._over))
            attacks = [tasks.create_task(attack(server, arguments.seed + n, self._over)) for n in range(STRANGERS)]
            tasks.create_task(self._reload())
            tasks.create_task(self._read(callers))
        seconds = time.monotonic() - began_s
        left_behind = await self._left_behind()
        tally, may_fail = callers.tally, OF_ENGINES if arguments.faults else ()
        internal = sum([await self._counted("dragoman_rpc_requests_total", code=code) for code in FAILURES])
        internal -= sum([await self._counted("dragoman_refusals_total", reason=reason) for reason in may_fail])
        return Report(
            machine=machine(),
            package=arguments.package.name,
            arguments=["--faults" if arguments.faults else "--no-faults", *arguments.server],
            seed=arguments.seed,
            seconds=seconds,
            calls=tally.calls,
            answers=tally.answers,
            reused=tally.reused,
            wrong=tally.wrong,
            broken={end: count for end, count in tally.broken.items() if end not in may_fail},
            internal=int(internal),
            ends=dict(tally.ends),
            attacks=sum(each.result() for each in attacks),
            reloads=self._reloads,
            restarts={
                cause: int(await self._counted("dragoman_engine_restarts_total", cause=cause))
                for cause in ("crash", "hang", "memory")
            },
            left_behind=left_behind,
            readings=self._readings,
            exit_code=await asyncio.to_thread(server.end),
        )

    def _over(self) -> bool:
        return time.monotonic() >= self._ends_s

    async def _reload(self) -> None:
        while not self._over():
            write(self._file, self._tokens)
            self._server.process.send_signal(signal.SIGHUP)
            self._reloads += 1
            await asyncio.sleep(RELOADS_S)

    async def _read(self, callers: Callers) -> None:
        """Once at least, however short the run is."""
        pause_s = (self._ends_s - time.monotonic()) / READINGS
        while not (self._readings and self._over()):
            await asyncio.sleep(pause_s)
            server, calls = self._server, callers.tally.calls
            self._readings.append(
                Reading(calls=calls, rss_mb=server.rss_mb(), descriptors=server.descriptors(), threads=server.threads())
            )

    async def _left_behind(self) -> float:
        ends_s = time.monotonic() + LEAVE_S
        while (left := sum([await self._counted(name) for name in LEFT])) and time.monotonic() < ends_s:
            await asyncio.sleep(0.2)
        return left

    async def _counted(self, name: str, **labels: str) -> float:
        return await asyncio.to_thread(self._server.counted, name, labels)


if __name__ == "__main__":
    sys.exit(main())
