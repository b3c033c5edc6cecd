"""Shows how far a run is: on a terminal a bar, elsewhere a line now and then. TensorBoard gets the same numbers."""

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch.utils.tensorboard import SummaryWriter

LINE_S = 30.0
"""Seconds between two lines where there is no terminal."""
RATE_S = 60.0
"""Seconds over which a rate is taken."""


class Display:
    """A run on its way. Use it as a context manager."""

    def __init__(self, console: Console, step: int, steps: int, unit: str = "steps") -> None:
        self._console = console
        self._steps, self._unit = steps, unit
        self._bar = Bar(
            BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn(), console=console
        )
        self._task = self._bar.add_task("", total=steps, completed=step)
        self._first, self._started, self._line = step, time.monotonic(), time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, step: int, detail: str) -> None:
        """Shows what was reached."""
        self._bar.update(self._task, completed=step, description=detail)
        now = time.monotonic()
        if not self._console.is_terminal and (now - self._line >= LINE_S or step == self._steps):
            self._line = now
            left = (now - self._started) / (step - self._first) * (self._steps - step)
            self.say(f"{step}/{self._steps} {self._unit}, {detail}, {left / 60:.1f} min left")

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class Rate:
    """Target tokens a second over the last minute. Sentences are done in bursts: all that waited for a long one."""

    def __init__(self) -> None:
        self._tokens = 0
        self._marks = deque([(time.monotonic(), 0)])
        """When it was read, and how many tokens there had been."""

    def add(self, tokens: int) -> None:
        self._tokens += tokens

    def read(self) -> float:
        """Tokens a second."""
        now = time.monotonic()
        while len(self._marks) > 1 and self._marks[1][0] <= now - RATE_S:
            self._marks.popleft()
        since, before = self._marks[0]
        self._marks.append((now, self._tokens))
        return (self._tokens - before) / max(now - since, 1e-9)


class TensorBoard:
    """Writes scalars below a folder."""

    def __init__(self, folder: Path, step: int) -> None:
        # What a killed run wrote after the checkpoint it goes on from is hidden.
        self._writer = SummaryWriter(folder, purge_step=step + 1)

    def write(self, step: int, group: str, values: Mapping[str, float]) -> None:
        """Adds a point to each curve."""
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
