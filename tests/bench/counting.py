"""A side that says where it lives. Its module is small, because every process of it imports that."""

import os
from collections.abc import Sequence
from pathlib import Path

from bench.cpu.work import Work


class Counting:
    """Says where it lives, and fails at a turn of its own."""

    def __init__(self, log: Path, name: str, fails_at: int = -1) -> None:
        if name == "nobody":
            raise LookupError("there is no such engine")
        self._log, self._name, self._fails_at, self._turns = log, name, fails_at, 0

    def prepare(self, work: Work) -> str:
        return f"{len(work.texts)} texts"

    def translate(self) -> int:
        self._turns += 1
        if self._turns == self._fails_at:
            os._exit(3)
        with self._log.open("a") as log:
            log.write(f"{self._name} {os.getpid()}\n")
        return 10

    def answers(self, texts: Sequence[str], num_beams: int) -> list[str]:
        return [f"{text} {num_beams}" for text in texts]
