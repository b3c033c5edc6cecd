"""Sides as processes that take turns."""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from bench.cpu.work import Reading, Side, Work

SPAWN = multiprocessing.get_context("spawn")
MOST_S = 1200
"""That a side may take for an answer: the largest models on a busy machine."""


class SideError(Exception):
    """A side cannot be opened, or cannot do the work. The message says why."""


class Competitor(Protocol):
    """Who takes turns."""

    @property
    def name(self) -> str: ...

    @property
    def rounds(self) -> int | None:
        """It takes so many turns at most."""
        ...

    def prepare(self, work: Work) -> str:
        """Gets ready, and says how. Raises SideError."""
        ...

    def turn(self) -> Reading:
        """Does the work. Raises SideError."""
        ...


class Player:
    """The process of a side."""

    def __init__(self, side: Side) -> None:
        """Raises SideError where the side cannot be opened."""
        self.name, self.rounds = side.name, side.rounds
        self._pipe, other = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_play, args=(other, side), daemon=True)
        self._process.start()
        other.close()
        try:
            self._receive()
        except SideError:
            self.close()
            raise

    def prepare(self, work: Work) -> str:
        """Raises SideError."""
        setup: str = self._ask("prepare", work)
        return setup

    def turn(self) -> Reading:
        """Raises SideError."""
        reading: Reading = self._ask("turn")
        return reading

    def answers(self, texts: Sequence[str], num_beams: int) -> list[str]:
        """Raises SideError."""
        found: list[str] = self._ask("answers", texts, num_beams)
        return found

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, what: str, *arguments: object) -> Any:
        try:
            self._pipe.send((what, arguments))
        except OSError:
            raise self._ended() from None
        return self._receive()

    def _receive(self) -> Any:
        if not self._pipe.poll(MOST_S):
            self._process.kill()
            raise SideError(f"it gave no answer in {MOST_S} s")
        try:
            done, answer = self._pipe.recv()
        except EOFError:
            raise self._ended() from None
        if not done:
            raise SideError(answer)
        return answer

    def _ended(self) -> SideError:
        self._process.join()
        return SideError(f"its process ended with {self._process.exitcode}")


@dataclass
class Turns:
    """What a race has seen. The readings of a side are in the order of the rounds, all sides began in the first."""

    readings: dict[str, list[Reading]] = field(default_factory=dict)
    setups: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    """Why a side did not run."""


@contextmanager
def players(sides: Sequence[Side], absent: dict[str, str]) -> Iterator[list[Player]]:
    """Opens the sides. Those that cannot be opened are put among the absent, with the reason."""
    with ExitStack() as stack:
        opened = []
        for side in sides:
            try:
                player = Player(side)
            except SideError as error:
                absent[side.name] = str(error)
                continue
            stack.callback(player.close)
            opened.append(player)
        yield opened


def race(given: Sequence[Competitor], work: Work, repeats: int) -> Turns:
    """Every side does the work so many times, by turns.

    The order is reversed every time, so that a drift of the machine hits all sides alike. A side that fails leaves.
    """
    turns = Turns()
    running = []
    for player in given:
        name = player.name
        try:
            turns.setups[name] = player.prepare(work)
        except SideError as error:
            turns.absent[name] = str(error)
            continue
        running.append(player)
        turns.readings[name] = []
    for repeat in range(repeats):
        for player in running[:: 1 if repeat % 2 == 0 else -1]:
            name = player.name
            if name in turns.absent or (player.rounds is not None and repeat >= player.rounds):
                continue
            try:
                turns.readings[name].append(player.turn())
            except SideError as error:
                turns.absent[name] = str(error)
                del turns.readings[name]
    return turns


def _play(pipe: Connection, side: Side) -> None:
    """The side's process: answers until nobody asks any more."""
    if side.packages is not None:
        sys.path.insert(0, side.packages)
    if side.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: side.cores])
    try:
        engine = side.open()
        pipe.send((True, None))
        while True:
            what, arguments = pipe.recv()
            if what == "turn":
                pipe.send((True, _timed(engine.translate)))
            else:
                pipe.send((True, getattr(engine, what)(*arguments)))
    except EOFError:
        return
    except Exception as error:  # whatever it is, it is the reason why the side is not there
        pipe.send((False, f"{type(error).__name__}: {error}"[:300]))


def _timed(translate: Any) -> Reading:
    started, cpu_started = time.perf_counter(), time.process_time()
    tokens = translate()
    return Reading(tokens, time.perf_counter() - started, time.process_time() - cpu_started)
